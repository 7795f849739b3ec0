#include "runtime/engine/run/step_phases.h"

#include <algorithm>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

double milliseconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

// Which collectives of a step add gradients over ranks: those that sum before the gradients are finished. Sums of
// activations, of the ranks that divide layers, are parts of the passes that compute them.
class GradientSums {
 public:
  explicit GradientSums(const Plan& plan)
      : plan_(plan), channels_(static_cast<size_t>(plan.channels)), waited_(channels_) {
    posted_.resize(channels_);
    bool finished = false;
    for (const Issue& issue : plan.order) {
      const Instruction& op = instruction_of(issue);
      finished = finished || op.op == OpKind::finish_gradients;
      sums_.push_back(!finished && makes_sums_over_ranks(op.op) && !adds_activations(op));
      if (is_posted(op.op)) posted_[static_cast<size_t>(op.channel)].push_back(sums_.back());
    }
  }

  // Whether issue `i` is one of them.
  bool is_sum(size_t i) const { return sums_[i]; }

  // Returns whether issue `i` waits for one that no issue before it has waited for. Takes the issues in their order.
  bool waits_for_sum(size_t i) {
    bool found = false;
    for (size_t c = 0; c < channels_; ++c) {
      const auto count = static_cast<size_t>(plan_.waits[i * channels_ + c]);
      for (; waited_[c] < count; ++waited_[c]) found = found || posted_[c][waited_[c]];
    }
    return found;
  }

  const Instruction& instruction_of(const Issue& issue) const {
    return plan_.program.instructions[static_cast<size_t>(issue.instruction)];
  }

 private:
  bool adds_activations(const Instruction& op) const {
    const Program& program = plan_.program;
    return program.at(program.root(op.reads[0])).memory == MemoryClass::activations;
  }

  const Plan& plan_;
  size_t channels_;
  std::vector<bool> sums_;                 // by issue
  std::vector<std::vector<bool>> posted_;  // the same by channel, of what is posted there
  std::vector<size_t> waited_;             // by channel: how many have been waited for
};

double& part_of(PhaseTimes& times, const Instruction& op) {
  if (op.when == When::step_begin) return times.forward;
  if (op.when == When::step_end) return times.step;
  return op.phase == Phase::forward ? times.forward : times.backward_inner;
}

double& part_of(MessageTimes& times, const Instruction& op) {
  const bool forward = op.phase == Phase::forward;
  if (sends_message(op)) return forward ? times.send_output : times.send_grad;
  return forward ? times.recv_input : times.recv_grad;
}

}  // namespace

StepPhases phases_of(const StepTrace& trace) {
  const Plan& plan = *trace.plan;
  StepPhases phases;
  phases.micro_batches.resize(static_cast<size_t>(std::max<int64_t>(plan.micro_batches, 1)));
  if (plan.place.stages() > 1) phases.messages.emplace();
  GradientSums sums(plan);
  int64_t begin = trace.whole.begin_ns;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Issue& issue = plan.order[i];
    const Instruction& op = sums.instruction_of(issue);
    PhaseTimes& times = op.when == When::step_end
                            ? phases.micro_batches.back()
                            : phases.micro_batches[static_cast<size_t>(issue.micro)];
    // The time of an issue goes on until the next one begins to wait.
    const int64_t end = trace.waits[i + 1].begin_ns, waited = trace.waits[i].size();
    double& part = sums.is_sum(i) ? times.backward_allreduce : part_of(times, op);
    (sums.waits_for_sum(i) ? times.backward_allreduce : part) += milliseconds(waited);
    part += milliseconds(end - begin - waited);
    begin = end;
    if (phases.messages && is_message(op.op))
      part_of(*phases.messages, op) += milliseconds(trace.issues[i].size());
  }
  phases.micro_batches.back().step += milliseconds(trace.whole.end_ns - begin);
  return phases;
}

}  // namespace dstrain
