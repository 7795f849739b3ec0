#include "runtime/engine/step/executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/engine/pairs/pair_count.h"
#include "runtime/engine/step/queues/start_collective.h"
#include "runtime/ir/kernel_spec.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/proof/verify_ranks.h"

namespace dstrain {
namespace {

constexpr size_t kMostOperands = 8;  // of a kernel

}  // namespace

Executor::Executor(const Plan& plan, const Arenas& arenas, const Backend& backend, const Job& job,
                   MeshComm& mesh, RankSlot* slot, int64_t first_name)
    : plan_(plan),
      arenas_(arenas),
      backend_(backend),
      job_(job),
      mesh_(mesh),
      slot_(slot),
      first_name_(first_name),
      feed_(plan, arenas, backend, weigh_of(job)),
      device_state_(backend, plan.micro_batches) {
  arenas.write_constants(plan);
  Communicator& comm = mesh.data();
  // Where ranks have parts of the model, the host adds what they contribute to the end of a step.
  const bool parts = plan.place.stages() > 1 || plan.place.ranks_in(Axis::tensor) > 1;
  gathered_.resize(kFinishValues * static_cast<size_t>(mesh.world().size()));
  sums_.resize(plan.program.trained_units().size());
  losses_.resize(plan.program.losses.size());
  for (size_t i = 0; i < plan.program.instructions.size(); ++i)
    bind(plan.program.instructions[i], i);
  if (!backend.device->is_host())
    launches_.emplace(plan, *backend.library, [&](BufferId id) {
      return id == kNone ? Tensor{} : arenas.tensor(plan, id);
    });
  const auto begins_step = [&](size_t i) { return rule_of(op_of(plan.order[i])).begins_step; };
  for (; body_ < plan.order.size() && begins_step(body_); ++body_)
    counts_targets_ = counts_targets_ || op_of(plan.order[body_]) == OpKind::reduce_counts;
  for (size_t i = body_; i < plan.order.size(); ++i)
    check(!begins_step(i), "{} is not at the beginning of the step", name_of(op_of(plan.order[i])));
  posts_ = count_posted(plan);
  posted_.resize(posts_.size());
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (is_posted(op.op)) posted_[static_cast<size_t>(op.channel)].push_back(issue.instruction);
  }
  const auto channels = static_cast<std::ptrdiff_t>(plan.comm_channels.size());
  const std::vector<size_t> most(posts_.begin(), posts_.begin() + channels);
  const bool any = std::ranges::any_of(most, [](size_t n) { return n > 0; });
  const bool own_thread = (job.overlap_comm || job.overlap_tensor) && mesh.world().size() > 1 &&
                          any && (plan.threads > 1 || !backend.device->is_host());
  if (own_thread) mesh.world().set_threads(1);
  queue_ = make_comm_queue(mesh.channels(), backend, most, own_thread);
  const auto posts_on = [this](int32_t channel) {
    return static_cast<size_t>(posts_[static_cast<size_t>(channel)]);
  };
  if (plan.copy_channel >= 0)
    copies_ = std::make_unique<CopyQueue>(backend, posts_on(plan.copy_channel));
  if (plan.io_channel >= 0) drives_.emplace(posts_on(plan.io_channel));
  // The host ends the step where it updates, and where it posts transfers that depend on the end.
  const bool host_ends =
      std::ranges::any_of(bound_, &Bound::on_host) ||
      std::ranges::any_of(plan.program.instructions, &Instruction::unless_skipped);
  if (!parts && !host_ends && !plan.program.weighs_losses() &&
      (comm.size() == 1 || comm.on_stream()))
    finish_ = backend.library->make_finish(finish_rule());
  if (finish_) {
    const int64_t mine = kFinishValues * static_cast<int64_t>(sizeof(double));
    finish_memory_ = backend.device->allocate(mine * (1 + comm.size()), "the end of a step");
    finish_all_ = {finish_memory_.data(), {comm.size(), kFinishValues}, DType::f64};
    finish_mine_ = {finish_memory_.data() + (comm.size() > 1 ? mine * comm.size() : 0),
                    {kFinishValues},
                    DType::f64};
  } else {
    finish_values_.emplace(mesh, plan.place, plan.program.trained_units(), plan.program.losses);
  }
  if (mesh.world().size() > 1) check_communication();
  settle_graph();
}

Executor::~Executor() {
  if (std::uncaught_exceptions() > 0 && mesh_.data().on_stream())
    mesh_.data().on_stream()->abandon();
  try {
    backend_.copies->synchronize();
    backend_.compute->synchronize();
  } catch (...) {  // run() has thrown the failure; a stream that failed runs nothing any more
  }
}

void Executor::wait_for(std::span<const int32_t> counts, bool on_host) {
  for (size_t c = 0; c < counts.size(); ++c) wait_in(static_cast<int>(c), counts[c], on_host);
}

void Executor::wait_in(int channel, int32_t count, bool on_host) {
  if (slot_ && count > 0)
    slot_->awaited.store(
        first_name_ + posted_[static_cast<size_t>(channel)][static_cast<size_t>(count - 1)],
        std::memory_order_relaxed);
  if (channel < plan_.first_other_channel())
    queue_->wait(channel, count);
  else if (channel == plan_.io_channel)
    drives_->wait(count);
  else if (on_host)
    copies_->synchronize(count);
  else
    copies_->wait(count);
  if (slot_) slot_->awaited.store(-1, std::memory_order_relaxed);
}

void Executor::bind(const Instruction& op, size_t index) {
  Bound bound;
  bound.first = operands_.size();
  bound.reads = op.reads.size();
  bound.writes = op.writes.size();
  check(!has_kernel(op.op) || (bound.reads <= kMostOperands && bound.writes <= kMostOperands),
        "{} has too many operands", name_of(op.op));
  for (const auto* list : {&op.reads, &op.writes})
    for (BufferId id : *list)
      operands_.push_back(id == kNone ? Operand{}
                                      : Operand{arenas_.tensor(plan_, id),
                                                plan_.address[static_cast<size_t>(id)].copies,
                                                plan_.address[static_cast<size_t>(id)].stride});
  bound.on_host = runs_on_host(plan_.program, op) || rule_of(op.op).done_by == DoneBy::drives;
  if (has_kernel(op.op)) {
    const KernelLibrary& library = bound.on_host ? *backend_.host_library : *backend_.library;
    bound.kernel = library.make(SpecStorage(plan_.program, op, plan_.threads).get());
    if (const int64_t bytes = plan_.workspace_bytes[index]; bytes > 0) {
      bound.workspace = {arenas_.at(plan_.workspace[index]), {bytes}, DType::u8};
      if (kAddressSanitizer && (bound.on_host || backend_.device->is_host())) {
        bound.guarded = guarded_workspace(bytes);
        bound.workspace.data = bound.guarded.get();
      }
    }
  }
  bound_.push_back(std::move(bound));
}

// Compares the messages and collectives of the ranks' plans. Collective.
void Executor::check_communication() {
  const std::vector<double> mine = channel_checksums(plan_);
  std::vector<double> all(mine.size() * static_cast<size_t>(mesh_.world().size()));
  mesh_.world().gather_values(mine, all);
  compare_checksums(all, plan_.place, job_.pipeline.schedule);
}

void Executor::run(StepContext& context) {
  const bool timed = context.by_instruction();
  const int64_t begin = timed ? monotonic_ns() : 0;
  observed_.reset();
  if (context.observer) observed_.emplace(*context.observer, plan_, arenas_, *context.state);
  run_issues(0, body_, context);
  if (counts_targets_ && context.state->targets == 0) return end_without_targets(context, begin);
  device_state_.upload(*context.state);
  if (!use_graph_ || timed || !warm_)
    run_issues(body_, plan_.order.size(), context);
  else
    run_body(context);
  if (context.next.dataset) feed_.read_ahead(context.next);
  const int64_t before = context.trace ? monotonic_ns() : 0;
  wait_for(posts_, false);
  if (observed_) report_completed(posts_);
  if (context.trace) context.trace->waits[plan_.order.size()] = {before, monotonic_ns()};
  device_state_.download(*context.state);
  if (context.trace) record(*context.trace, begin);
  if (context.on_collective) report_collectives(context);
  queue_->restart();
  if (copies_) copies_->restart();
  if (drives_) drives_->restart();
  warm_ = true;
  if (finish_) check_finish(*context.state);
}

void Executor::run_issues(size_t begin, size_t end, StepContext& context) {
  const bool timed = context.by_instruction();
  for (size_t i = begin; i < end; ++i) {
    const Issue& issue = plan_.order[i];
    const auto index = static_cast<size_t>(issue.instruction);
    if (slot_) slot_->publish(first_name_ + issue.instruction);
    queue_->poll();
    if (const MultiTensorLaunch* launch = launches_ && !timed ? launches_->at(i) : nullptr) {
      run_launch(*launch, context);
      i += launch->count - 1;
      continue;
    }
    const int64_t start = context.trace ? monotonic_ns() : 0;
    wait_for(std::span(plan_.waits).subspan(i * posts_.size(), posts_.size()),
             bound_[index].on_host);
    if (context.trace) backend_.compute->synchronize();  // on a device its stream is what waits
    const int64_t before = timed ? monotonic_ns() : 0;
    if (context.trace) context.trace->waits[i] = {start, before};
    if (observed_)
      run_observed(i, context);
    else
      run_one(bound_[index], issue, context);
    if (!timed) continue;
    backend_.compute->synchronize();
    const int64_t after = monotonic_ns();
    if (context.trace) context.trace->issues[i] = {before, after};
    if (!context.seconds.empty())
      context.seconds[index] += static_cast<double>(after - before) * 1e-9;
  }
}

void Executor::report_completed(std::span<const int32_t> counts) {
  backend_.compute->synchronize();  // which waits for them
  observed_->completed(counts);
}

// Returns a kernel for an instruction with other attributes.
std::unique_ptr<Kernel> Executor::kernel_with(const OpAttrs& attrs, const Issue& issue,
                                              const Bound& bound) const {
  Instruction op = instruction_of(issue);
  op.attrs = attrs;
  const KernelLibrary& library = bound.on_host ? *backend_.host_library : *backend_.library;
  return library.make(SpecStorage(plan_.program, op, plan_.threads).get());
}

// Runs issue `index` of the order, which has waited, and tells the observer.
void Executor::run_observed(size_t index, StepContext& context) {
  const Issue& issue = plan_.order[index];
  report_completed(std::span(plan_.waits).subspan(index * posts_.size(), posts_.size()));
  const IssueChange change = observed_->before(index);
  sample_shift_ = change.sample_shift;
  const bool posted = is_posted(op_of(issue));
  Bound& bound = bound_[static_cast<size_t>(issue.instruction)];
  std::unique_ptr<Kernel> own;
  if (change.attrs) own = std::exchange(bound.kernel, kernel_with(*change.attrs, issue, bound));
  if (posted || !change.skip) run_one(bound, issue, context);
  if (own) bound.kernel = std::move(own);
  sample_shift_ = 0;
  if (posted) return;
  backend_.compute->synchronize();
  observed_->after(index);
}

// Waits for what the instructions of a launch need, and launches them.
void Executor::run_launch(const MultiTensorLaunch& launch, const StepContext& context) {
  for (size_t i = launch.first; i < launch.first + launch.count; ++i)
    wait_for(std::span(plan_.waits).subspan(i * posts_.size(), posts_.size()), false);
  launches_->run(launch, device_state_.address(context.state));
}

void Executor::record(StepTrace& trace, int64_t begin_ns) const {
  trace.whole = {begin_ns, monotonic_ns()};
  std::vector<size_t> next(posts_.size());
  for (size_t i = 0; i < plan_.order.size(); ++i) {
    if (!is_posted(op_of(plan_.order[i]))) continue;
    const int channel = instruction_of(plan_.order[i]).channel;
    const size_t number = next[static_cast<size_t>(channel)]++;
    trace.issues[i] = channel < plan_.first_other_channel() ? queue_->times(channel, number)
                      : channel == plan_.copy_channel       ? copies_->times(number)
                                                            : drives_->times(number);
  }
}

void Executor::report_collectives(const StepContext& context) const {
  std::vector<size_t> next(posts_.size());
  for (const Issue& issue : plan_.order) {
    const Instruction& op = instruction_of(issue);
    if (!is_collective(op.op)) continue;
    const auto channel = static_cast<size_t>(op.channel);
    const TimeSpan time = queue_->times(op.channel, next[channel]++);
    context.on_collective({.op = op.op,
                           .bytes = payload_bytes(plan_.program, op),
                           .ranks = mesh_.channels()[channel]->size(),
                           .seconds = static_cast<double>(time.size()) * 1e-9},
                          op);
  }
}

// A collective reads and writes one operand at most each; an exchange of rows reads their counts, too.
void Executor::post_collective(const Bound& bound, const Issue& issue) {
  const Instruction& op = instruction_of(issue);
  const Tensor in = op.reads.empty() ? Tensor{} : operand(bound, 0, issue.micro);
  const Tensor out = op.writes.empty() ? Tensor{} : operand(bound, op.reads.size(), issue.micro);
  const Tensor counts = bound.reads > 1 ? operand(bound, 1, issue.micro) : Tensor{};
  queue_->post(op.channel, op.op, in, out, row_counts(op, in, counts));
}

void Executor::run_one(const Bound& bound, const Issue& issue, StepContext& context) {
  const DoneBy by = rule_of(op_of(issue)).done_by;
  if (by == DoneBy::kernel) return run_kernel(bound, issue, context);
  if (by == DoneBy::collective) return post_collective(bound, issue);
  if (by == DoneBy::copies) return post_copy(bound, issue, context);
  if (by == DoneBy::drives) return post_swap(bound, issue, context);
  switch (op_of(issue)) {
    case OpKind::load_batch:
      return load_batch(context);
    case OpKind::zero: {
      const Tensor t = operand(bound, 0, issue.micro);
      if (bound.on_host)
        return static_cast<void>(std::memset(t.data, 0, static_cast<size_t>(t.bytes())));
      return backend_.compute->zero(t.data, t.bytes());
    }
    case OpKind::reduce_counts:
      return reduce_counts(context);
    case OpKind::finish_gradients:
      return finish_gradients(bound, context);
    default:
      throw InternalError(fmt::format("the executor does not do {}", name_of(op_of(issue))));
  }
}

Tensor Executor::operand(const Bound& bound, size_t i, int micro) const {
  const Operand& o = operands_[bound.first + i];
  Tensor t = o.tensor;
  if (t) t.data = static_cast<std::byte*>(t.data) + micro % o.copies * o.stride;
  return t;
}

void Executor::run_kernel(const Bound& bound, const Issue& issue,
                          const StepContext& context) const {
  const Instruction& op = instruction_of(issue);
  std::array<Tensor, kMostOperands> in, out;
  for (size_t i = 0; i < bound.reads; ++i) in[i] = operand(bound, i, issue.micro);
  for (size_t i = 0; i < bound.writes; ++i) out[i] = operand(bound, bound.reads + i, issue.micro);
  bound.kernel->run(
      {.in = {in.data(), bound.reads},
       .out = {out.data(), bound.writes},
       .workspace = bound.workspace,
       .state = bound.on_host ? context.state : device_state_.address(context.state),
       .sample_offset = plan_.part_of_samples(issue.micro) * job_.rows_of(job_.batch.micro_batch) +
                        sample_shift_,
       .accumulate = op.accumulate == Accumulate::always ||
                     (op.accumulate == Accumulate::after_first_micro && issue.micro > 0)});
}

// The host knows whether the step is skipped: where transfers depend on it, it has done finish_gradients.
void Executor::post_copy(const Bound& bound, const Issue& issue, const StepContext& context) {
  if (instruction_of(issue).unless_skipped && context.state->skip) return copies_->pass();
  copies_->post(operand(bound, 0, issue.micro), operand(bound, 1, issue.micro));
}

void Executor::post_swap(const Bound& bound, const Issue& issue, const StepContext& context) {
  if (instruction_of(issue).unless_skipped && context.state->skip) return drives_->pass();
  drives_->post(arenas_.disk(), op_of(issue), operand(bound, 0, issue.micro),
                operand(bound, 1, issue.micro));
}

void Executor::load_batch(StepContext& context) {
  if (!context.batch.dataset) return feed_.load_values(context.inputs);
  context.state->targets = feed_.load(context.batch);
}

void Executor::reduce_counts(StepContext& context) {
  StepState& s = *context.state;
  const double mine = static_cast<double>(s.targets);
  const std::span<double> all(gathered_.data(), static_cast<size_t>(mesh_.data().size()));
  mesh_.data().gather_values({&mine, 1}, all);
  const FinishRule rule = finish_rule();
  double total = 0, shared = 0;  // of the ranks that add their gradients
  for (size_t r = 0; r < all.size(); ++r) {
    const auto rank = static_cast<int64_t>(r);
    total += all[r];
    if (rank >= rule.first_rank && rank < rule.first_rank + rule.group_ranks) shared += all[r];
  }
  s.targets = static_cast<int64_t>(total);
  s.d_loss = shared > 0 ? static_cast<float>(static_cast<double>(s.loss_scale) / shared) : 0;
}

void Executor::finish_gradients(const Bound& bound, StepContext& context) {
  const Tensor units = operand(bound, 0, 0);
  StepState* const there = device_state_.address(context.state);
  if (finish_) {
    finish_->collect(units, operand(bound, 1, 0), there, finish_mine_);
    if (mesh_.data().size() > 1)
      mesh_.data().on_stream()->all_gather(finish_mine_, finish_all_, *backend_.compute);
    return finish_->finish(finish_all_, there);
  }
  StepState& s = *context.state;
  Device& device = *backend_.device;
  backend_.compute->synchronize();
  device.download(sums_.data(), units.data, units.bytes());
  const FinishRule rule = finish_rule();
  for (size_t l = 0; l < losses_.size(); ++l) {
    const Tensor loss = operand(bound, 1 + l, 0);  // none: it is another stage's
    losses_[l] = loss ? first_value<double>(device, loss) : 0;
  }
  finish_values_->exchange(s, sums_, losses_, rule);
  finish_step(s, rule);
  check_finish(s);
  device_state_.upload(s);
}

}  // namespace dstrain
