#include "runtime/engine/executor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/optim/loss_scaler.h"
#include "runtime/plan/kernel_spec.h"

namespace dstrain {
namespace {

constexpr size_t kMostOperands = 8;
constexpr double kClipEps = 1e-6;  // as in torch.nn.utils.clip_grad_norm_ and DeepSpeed

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
}

void Executor::run(StepContext& context) const {
  using Clock = std::chrono::steady_clock;
  const bool timed = !context.seconds.empty();
  Clock::time_point before = timed ? Clock::now() : Clock::time_point{};
  for (const Issue& issue : plan_.order) {
    const auto index = static_cast<size_t>(issue.instruction);
    if (slot_) slot_->publish(issue.instruction);
    run_one(bound_[index], issue, context);
    if (!timed) continue;
    const Clock::time_point after = Clock::now();
    context.seconds[index] += std::chrono::duration<double>(after - before).count();
    before = after;
  }
}

void Executor::run_one(const Bound& bound, const Issue& issue, StepContext& context) const {
  switch (plan_.program.instructions[static_cast<size_t>(issue.instruction)].op) {
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
      return all_reduce(bound);
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

void Executor::all_reduce(const Bound& bound) const {
  comm_.all_reduce(operand(bound, 0, 0)).wait();
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
  for (const Parameter& p : program.parameters) {
    const BufferId unit = program.find("grads:" + program.units[static_cast<size_t>(p.unit)].name);
    if (p.gradient == kNone) continue;
    const auto* values = arenas_.tensor(plan_, unit).as<const float>() + p.offset;
    const auto* bad = std::find_if_not(values, values + p.shape.elements(),
                                       [](float v) { return std::isfinite(v); });
    if (bad == values + p.shape.elements()) continue;
    fail_run(
        "step {}: loss {}, gradient norm {}; the first gradient with a non-finite value is {} "
        "(element "
        "{} is {}); lower the learning rate, or look at the data of this step",
        s.step, s.loss_sum / static_cast<double>(s.targets), s.grad_norm, p.name, bad - values,
        *bad);
  }
  fail_run("step {}: loss {}, gradient norm {}: not finite on another rank", s.step,
           s.loss_sum / static_cast<double>(s.targets), s.grad_norm);
}

}  // namespace dstrain
