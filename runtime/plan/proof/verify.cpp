#include "runtime/plan/proof/verify.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/placement/peers.h"
#include "runtime/plan/proof/repetition.h"

namespace dstrain {
namespace {

class Replay {
 public:
  explicit Replay(const Plan& plan)
      : plan_(plan),
        program_(plan.program),
        repetition_(plan),
        state_(static_cast<size_t>(plan.channels)) {}

  void run() {
    claim_initial();
    for (size_t i = 0; i < plan_.order.size(); ++i) {
      if (const auto task = repetition_.task_at(i))
        i = repetition_.first_issue(pass_repetitions(*task));
      if (i == plan_.order.size()) break;
      const Issue& issue = plan_.order[i];
      const Instruction& op = op_of(issue);
      if (is_posted(op.op)) ++state_.started[static_cast<size_t>(op.channel)];
      beside_collectives(issue, waits(i));
      step(issue);
    }
    for (const ProgramLoss& loss : program_.losses)
      if (loss.sum != kNone)
        require(loss.sum, 0, [] { return std::string("the end of the step"); });
  }

 private:
  // The beginning of a period.
  struct Moment {
    size_t task = 0;
    Period period{};
    ReplayState state{};
  };

  std::span<const int32_t> waits(size_t i) const {
    return std::span(plan_.waits).subspan(i * state_.started.size(), state_.started.size());
  }

  const Instruction& op_of(const Issue& issue) const {
    return program_.instructions[static_cast<size_t>(issue.instruction)];
  }

  // Before the first step there are values, optimizer state and the zeros between gradients. The gradients
  // themselves are those of the previous step and must be written again.
  void claim_initial() {
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& b = program_.buffers[i];
      if (b.parent != kNone || b.lifetime != Lifetime::persistent) continue;
      if (b.memory != MemoryClass::gradients) claim(static_cast<BufferId>(i), 0);
    }
    std::vector<BufferId> gradients;
    for (const Parameter& p : program_.parameters)
      if (p.gradient != kNone) gradients.push_back(p.gradient);
    for (const BufferId id : gradients)
      if (program_.at(program_.root(id)).lifetime == Lifetime::persistent)
        claim(program_.root(id), 0);
    for (const BufferId id : gradients) {
      const auto [begin, end] = range(id, 0);
      region(id).claim(begin, end, kNobody);
    }
  }

  // Skips repetitions. If the period before `task` left the state as it found it, every following period with the
  // same issues and waits does so too. Returns the first task after those.
  size_t pass_repetitions(size_t task) {
    if (period_ && task == period_->task + period_->period.tasks) {
      const Moment before = *std::exchange(period_, std::nullopt);
      if (same_state(repetition_.moved(before.state, before.period.micros, state_.started), state_))
        task = pass_repetitions(before, task);
    }
    if (!period_)
      if (const auto period = repetition_.period_at(task)) period_ = {task, *period, state_};
    return task;
  }

  size_t pass_repetitions(const Moment& before, size_t task) {
    std::vector<int32_t> per_period = state_.started, started = state_.started;
    for (size_t c = 0; c < started.size(); ++c) per_period[c] -= before.state.started[c];
    int64_t micros = 0;
    while (repetition_.repeats(before.task, task, before.period, before.state.started, started) &&
           holds_inputs(task, before.period)) {
      for (size_t c = 0; c < started.size(); ++c) started[c] += per_period[c];
      micros += before.period.micros;
      task += before.period.tasks;
    }
    if (micros == 0) return task;
    state_ = repetition_.moved(state_, micros, started);
    return task;
  }

  // Returns whether what the period reads of its own micro-batches has been written: it lies elsewhere in each.
  bool holds_inputs(size_t task, const Period& period) const {
    const size_t end = repetition_.first_issue(task + period.tasks);
    for (size_t i = repetition_.first_issue(task); i < end; ++i)
      for (const BufferId id : op_of(plan_.order[i]).reads)
        if (id != kNone && program_.at(program_.root(id)).per_micro &&
            !holds(id, plan_.order[i].micro))
          return false;
    return true;
  }

  std::pair<int64_t, int64_t> range(BufferId id, int micro) const {
    const Address& a = plan_.address[static_cast<size_t>(id)];
    const int64_t begin = a.offset_of(micro);
    return {begin, begin + program_.at(id).bytes()};
  }
  ByteOwners& region(BufferId id) {
    return state_.regions[static_cast<size_t>(plan_.address[static_cast<size_t>(id)].region)];
  }
  int64_t owner(BufferId id, int micro) const { return owner_of(plan_, program_.root(id), micro); }
  void claim(BufferId id, int micro) {
    const auto [begin, end] = range(id, micro);
    region(id).claim(begin, end, owner(id, micro));
  }
  bool holds(BufferId id, int micro) const {
    const auto [begin, end] = range(id, micro);
    const Address& a = plan_.address[static_cast<size_t>(id)];
    return state_.regions[static_cast<size_t>(a.region)].owned(begin, end, owner(id, micro));
  }
  template <class Where>
  void require(BufferId id, int micro, const Where& where) const {
    if (!holds(id, micro))
      throw InternalError(
          fmt::format("{} reads {} before it is written, or after its bytes were reused", where(),
                      program_.at(id).name));
  }

  // Checks that an instruction neither touches what a running collective writes nor writes what the
  // collective, and so perhaps a peer, reads.
  void beside_collectives(const Issue& issue, std::span<const int32_t> complete) {
    const auto index = static_cast<size_t>(issue.instruction);
    const Instruction& op = program_.instructions[index];
    const bool collective = is_posted(op.op);
    for (size_t c = 0; c < complete.size(); ++c) {
      const bool mine = collective && c == static_cast<size_t>(op.channel);
      check(complete[c] <= state_.started[c] - (mine ? 1 : 0),
            "{} of {} waits for a collective to come", name_of(op.op), program_.group_name(op));
      state_.complete[c] = std::max(state_.complete[c], complete[c]);
    }
    if (!collective && state_.complete == state_.started) return;
    uses_.clear();
    const auto add = [&](BufferId id, bool write) {
      if (id == kNone) return;
      const auto [begin, end] = range(id, issue.micro);
      uses_.push_back(
          {plan_.address[static_cast<size_t>(id)].region, begin, end, write, program_.at(id).name});
    };
    if (!collective || op.reads != op.writes)
      for (const BufferId id : op.reads) add(id, false);
    for (const BufferId id : op.writes) add(id, true);
    const Address& work = plan_.workspace[index];
    if (const int64_t bytes = plan_.workspace_bytes[index]; bytes > 0)
      uses_.push_back({work.region, work.offset, work.offset + bytes, true, "its workspace"});
    for (const Use& use : uses_) beside_collectives(issue, use);
    if (!collective) return;
    const auto channel = static_cast<size_t>(op.channel);
    for (const Use& use : uses_)
      state_.posted.users(channel, use.region, use.write)
          .claim(use.begin, use.end, state_.started[channel]);
  }

  // What an instruction does with a range of bytes.
  struct Use {
    Region region;
    int64_t begin, end;
    bool write;
    std::string_view name;
  };

  void beside_collectives(const Issue& issue, const Use& use) const {
    const Instruction& op = op_of(issue);
    for (size_t c = 0; c < state_.started.size(); ++c) {
      const bool own = is_posted(op.op) && c == static_cast<size_t>(op.channel);
      if (state_.complete[c] == state_.started[c] || (own && keeps_order(op.op))) continue;
      for (const bool writes : {true, false}) {
        if (!writes && !use.write) continue;
        const int64_t number =
            state_.posted.users(c, use.region, writes).largest_owner(use.begin, use.end);
        if (number <= state_.complete[c]) continue;
        throw InternalError(fmt::format(
            "{} of {}, micro-batch {}, {} {} while collective {} of the step may be {} it",
            name_of(op.op), program_.group_name(op), issue.micro, use.write ? "writes" : "reads",
            use.name, number, writes ? "writing" : "reading"));
      }
    }
  }

  void step(const Issue& issue) {
    const auto index = static_cast<size_t>(issue.instruction);
    const Instruction& op = program_.instructions[index];
    const auto where = [&] {
      return fmt::format("{} of {}, micro-batch {}", name_of(op.op), program_.group_name(op),
                         issue.micro);
    };
    const bool all_micros = op.when == When::step_begin || op.when == When::step_end;
    for (BufferId id : op.reads) {
      if (id == kNone) continue;
      const int copies =
          all_micros && program_.at(id).per_micro ? static_cast<int>(plan_.micro_batches) : 1;
      for (int m = 0; m < copies; ++m) require(id, copies > 1 ? m : issue.micro, where);
    }
    if (plan_.workspace_bytes[index] > 0) {
      const Address& work = plan_.workspace[index];
      state_.regions[static_cast<size_t>(work.region)].claim(
          work.offset, work.offset + plan_.workspace_bytes[index], owner_of_workspace(index));
    }
    for (size_t i = 0; i < op.writes.size(); ++i) {
      const BufferId id = op.writes[i];
      if (id == kNone) continue;
      const bool adds = op.accumulate == Accumulate::always ||
                        (op.accumulate == Accumulate::after_first_micro && issue.micro > 0);
      if (adds && rule_of(op.op).sums.contains(i)) require(id, issue.micro, where);
      const int copies =
          all_micros && program_.at(id).per_micro ? static_cast<int>(plan_.micro_batches) : 1;
      for (int m = 0; m < copies; ++m) claim(id, copies > 1 ? m : issue.micro);
    }
    for (BufferId id : op.reads)  // neither workspace nor outputs may overlap an operand
      if (id != kNone && !all_micros &&
          std::find(op.writes.begin(), op.writes.end(), id) == op.writes.end())
        require(id, issue.micro, where);
  }

  const Plan& plan_;
  const Program& program_;
  const Repetition repetition_;
  ReplayState state_;
  std::vector<Use> uses_{};       // of the instruction at hand
  std::optional<Moment> period_;  // that is being replayed
};

}  // namespace

void verify(const Plan& plan) {
  const Program& p = plan.program;
  for (const Instruction& op : p.instructions) {
    check_op(p, op);
    for (const BufferId id : read_by_peers(plan, op))
      check(plan.address[static_cast<size_t>(id)].region == Region::registered,
            "{} of {}: peers read {}, which is not in registered memory", name_of(op.op),
            p.group_name(op), p.at(id).name);
  }
  for (const Buffer& b : p.buffers) {
    if (b.parent == kNone) continue;
    const Buffer& parent = p.at(b.parent);
    check(b.dtype == parent.dtype && b.parent_offset >= 0 &&
              b.parent_offset + b.shape.elements() <= parent.shape.elements(),
          "{} lies outside {}", b.name, parent.name);
  }
  Replay(plan).run();
  verify_gathers(plan);
}

}  // namespace dstrain
