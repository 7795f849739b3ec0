#include "runtime/engine/executor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/optim/loss_scaler.h"
#include "runtime/plan/kernel_spec.h"

namespace dstrain {
namespace {

constexpr size_t kMostOperands = 8;
constexpr double kClipEps = 1e-6;  // as in torch.nn.utils.clip_grad_norm_ and DeepSpeed

float value_at(const Tensor& t, int64_t i) {
  if (t.dtype == DType::bf16) return to_float(t.as<const bf16>()[i]);
  if (t.dtype == DType::f16) return to_float(t.as<const f16>()[i]);
  return t.as<const float>()[i];
}

}  // namespace

Executor::Executor(const Plan& plan, const Arenas& arenas, const KernelLibrary& library,
                   const Job& job, Communicator& comm, RankSlot* slot)
    : plan_(plan), arenas_(arenas), job_(job), comm_(comm), slot_(slot) {
  gathered_.resize(3 * static_cast<size_t>(comm.size()));
  const Program& program = plan.program;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& op = program.instructions[i];
    Bound bound;
    bound.first = operands_.size();
    bound.reads = op.reads.size();
    bound.writes = op.writes.size();
    check(bound.reads <= kMostOperands && bound.writes <= kMostOperands, "{} has too many operands",
          name_of(op.op));
    for (const auto* list : {&op.reads, &op.writes})
      for (BufferId id : *list)
        operands_.push_back(id == kNone
                                ? Operand{}
                                : Operand{arenas.tensor(plan, id),
                                          plan.address[static_cast<size_t>(id)].micro_stride});
    if (has_kernel(op.op)) {
      bound.kernel = library.make(SpecStorage(program, op, plan.threads).get());
      if (plan.workspace_bytes[i] > 0)
        bound.workspace = {arenas.at(plan.workspace[i]), {plan.workspace_bytes[i]}, DType::u8};
    }
    bound_.push_back(std::move(bound));
  }
  collectives_ = count_collectives(plan);
  const bool own_thread =
      job.overlap_comm && comm.size() > 1 && plan.threads > 1 && collectives_ > 0;
  if (own_thread) comm.set_threads(1);
  queue_ = make_comm_queue(comm, static_cast<size_t>(collectives_), own_thread);
}

void Executor::run(StepContext& context) const {
  const bool timed = !context.seconds.empty() || context.trace;
  const int64_t begin = timed ? monotonic_ns() : 0;
  const auto wait = [&](int32_t collectives, size_t place) {
    const int64_t before = context.trace ? monotonic_ns() : 0;
    queue_->wait(collectives);
    if (context.trace) context.trace->waits[place] = {before, monotonic_ns()};
  };
  for (size_t i = 0; i < plan_.order.size(); ++i) {
    const Issue& issue = plan_.order[i];
    const auto index = static_cast<size_t>(issue.instruction);
    if (slot_) slot_->publish(issue.instruction);
    queue_->poll();
    wait(plan_.waits[i], i);
    const int64_t before = timed ? monotonic_ns() : 0;
    run_one(bound_[index], issue, context);
    if (!timed) continue;
    const int64_t after = monotonic_ns();
    if (context.trace) context.trace->issues[i] = {before, after};
    if (!context.seconds.empty())
      context.seconds[index] += static_cast<double>(after - before) * 1e-9;
  }
  wait(collectives_, plan_.order.size());
  if (context.trace) record(*context.trace, begin);
  queue_->restart();
}

void Executor::record(StepTrace& trace, int64_t begin_ns) const {
  trace.whole = {begin_ns, monotonic_ns()};
  size_t next = 0;
  for (size_t i = 0; i < plan_.order.size(); ++i)
    if (is_collective(op_of(plan_.order[i]))) trace.issues[i] = queue_->times(next++);
}

void Executor::run_one(const Bound& bound, const Issue& issue, StepContext& context) const {
  switch (op_of(issue)) {
    case OpKind::load_batch:
      return load_batch(bound, context);
    case OpKind::zero: {
      const Tensor t = operand(bound, 0, issue.micro);
      std::memset(t.data, 0, static_cast<size_t>(t.bytes()));
      return;
    }
    case OpKind::reduce_counts:
      return reduce_counts(context);
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
      return queue_->post(op_of(issue), operand(bound, 0, issue.micro),
                          operand(bound, 1, issue.micro));
    case OpKind::finish_gradients:
      return finish_gradients(bound, context);
    default:
      return run_kernel(bound, issue, context);
  }
}

Tensor Executor::operand(const Bound& bound, size_t i, int micro) const {
  const Operand& o = operands_[bound.first + i];
  Tensor t = o.tensor;
  if (t) t.data = static_cast<std::byte*>(t.data) + micro * o.micro_stride;
  return t;
}

void Executor::run_kernel(const Bound& bound, const Issue& issue,
                          const StepContext& context) const {
  const Instruction& op = plan_.program.instructions[static_cast<size_t>(issue.instruction)];
  std::array<Tensor, kMostOperands> in, out;
  for (size_t i = 0; i < bound.reads; ++i) in[i] = operand(bound, i, issue.micro);
  for (size_t i = 0; i < bound.writes; ++i) out[i] = operand(bound, bound.reads + i, issue.micro);
  const int64_t place = issue.micro * plan_.place.ranks + plan_.place.rank;
  bound.kernel->run(
      {.in = {in.data(), bound.reads},
       .out = {out.data(), bound.writes},
       .workspace = bound.workspace,
       .state = context.state,
       .sample_offset = place * job_.batch.micro_batch,
       .accumulate = op.accumulate == Accumulate::always ||
                     (op.accumulate == Accumulate::after_first_micro && issue.micro > 0)});
}

void Executor::load_batch(const Bound& bound, StepContext& context) const {
  int64_t targets = 0;
  for (int m = 0; m < static_cast<int>(plan_.micro_batches); ++m) {
    const Tensor inputs = operand(bound, 0, m), labels = operand(bound, 1, m);
    if (!context.dataset) {
      check(context.ids.size() == static_cast<size_t>(inputs.elements()),
            "decoding needs {} ids, got {}", inputs.elements(), context.ids.size());
      std::copy(context.ids.begin(), context.ids.end(), inputs.as<int32_t>());
      continue;
    }
    const int64_t count = inputs.shape[0];
    const int64_t place = (m * plan_.place.ranks + plan_.place.rank) * count;
    context.dataset->read(context.split, context.first + place, count, inputs, labels);
    const auto* ids = labels.as<const int32_t>();
    targets += std::count_if(ids, ids + labels.elements(), [](int32_t id) { return id >= 0; });
  }
  context.state->targets = targets;
}

void Executor::reduce_counts(StepContext& context) const {
  StepState& s = *context.state;
  const double mine = static_cast<double>(s.targets);
  const std::span<double> all(gathered_.data(), static_cast<size_t>(comm_.size()));
  comm_.gather_values({&mine, 1}, all);
  double total = 0;
  for (double count : all) total += count;
  if (total == 0) fail_run("step {}: the batch has no target to learn from", s.step);
  s.targets = static_cast<int64_t>(total);
  s.d_loss = static_cast<float>(static_cast<double>(s.loss_scale) / total);
}

void Executor::finish_gradients(const Bound& bound, StepContext& context) const {
  StepState& s = *context.state;
  const Tensor units = operand(bound, 0, 0);
  std::array<double, 3> mine{};
  for (int64_t u = 0; u < units.elements(); ++u) mine[0] += units.as<const double>()[u];
  mine[1] = *operand(bound, 1, 0).as<const double>();
  mine[2] = context.stop_requested ? 1 : 0;
  comm_.gather_values(mine, gathered_);
  s.grad_square_sum = s.loss_sum = 0;
  context.stop_agreed = false;
  for (size_t r = 0; r < gathered_.size(); r += 3) {  // in rank order
    s.grad_square_sum += gathered_[r];
    s.loss_sum += gathered_[r + 1];
    context.stop_agreed = context.stop_agreed || gathered_[r + 2] != 0;
  }

  const double scale = s.loss_scale;
  const double norm = std::sqrt(s.grad_square_sum) / scale;
  s.grad_norm = static_cast<float>(norm);
  const bool finite = std::isfinite(s.grad_square_sum) && std::isfinite(s.loss_sum);
  if (!finite && !job_.skip_on_overflow) report_non_finite(context);
  s.skip = finite ? 0 : 1;
  const double clip = job_.gradient_clipping;
  const double coefficient = finite && clip > 0 ? std::min(1.0, clip / (norm + kClipEps)) : 1.0;
  s.grad_scale = static_cast<float>(coefficient / scale);
  update_loss_scale(s, job_.loss_scale, !finite);
}

void Executor::report_non_finite(const StepContext& context) const {
  const StepState& s = *context.state;
  const Program& program = plan_.program;
  // The first parameter of which any rank holds a non-finite sum, its element and the value.
  const auto count = static_cast<double>(program.parameters.size());
  std::array<double, 3> mine{count, 0, 0};
  for (size_t i = 0; i < program.parameters.size() && mine[0] == count; ++i) {
    const Parameter& p = program.parameters[i];
    const Unit& unit = program.units[static_cast<size_t>(p.unit)];
    const BufferId id = program.find("grads:" + unit.name);
    if (id == kNone) continue;
    const Range owned = owned_slice(unit, plan_.place);
    const int64_t held = range_of(program.at(id), unit, plan_.place).begin;
    const int64_t begin = std::max(owned.begin, p.offset);
    const int64_t end = std::min(owned.end, p.offset + p.shape.elements());
    const Tensor sums = arenas_.tensor(plan_, id);
    for (int64_t e = begin; e < end; ++e) {
      const float value = value_at(sums, e - held);
      if (std::isfinite(value)) continue;
      mine = {static_cast<double>(i), static_cast<double>(e - p.offset), value};
      break;
    }
  }
  comm_.gather_values(mine, gathered_);
  size_t first = 0;
  for (size_t r = 3; r < gathered_.size(); r += 3)
    if (gathered_[r] < gathered_[first]) first = r;
  const double loss = s.loss_sum / static_cast<double>(s.targets);
  if (gathered_[first] == count)
    fail_run("step {}: loss {}, gradient norm {}: not finite, although every gradient is", s.step,
             loss, s.grad_norm);
  fail_run(
      "step {}: loss {}, gradient norm {}; the first gradient with a non-finite value is {} "
      "(element {} is {}); lower the learning rate, or look at the data of this step",
      s.step, loss, s.grad_norm, program.parameters[static_cast<size_t>(gathered_[first])].name,
      static_cast<int64_t>(gathered_[first + 1]), gathered_[first + 2]);
}

}  // namespace dstrain
