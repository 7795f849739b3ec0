// StepObserver: sees every instruction of a step with its operands, to record what the step computes or to change it.
// The executor tells one (StepContext::observer) and waits for every instruction then; a step without one pays nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/step_state.h"
#include "runtime/engine/step/arenas.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// One execution of an instruction, with the memory of its operands.
struct ObservedIssue {
  const Plan& plan;
  const Arenas& arenas;
  const StepState& state;  // before the step's end: what the trainer has set
  Issue issue;

  const Instruction& instruction() const {
    return plan.program.instructions[static_cast<size_t>(issue.instruction)];
  }
  // Returns the memory of an operand; empty for one that is absent.
  Tensor tensor(BufferId id) const {
    return id == kNone ? Tensor{} : arenas.tensor(plan, id, issue.micro);
  }
};

// What an observer changes of an instruction.
struct IssueChange {
  bool skip = false;         // it is not carried out; not for what is posted to a channel
  int64_t sample_shift = 0;  // added to the number of the first sample, from which dropout counts
  // In the place of the instruction's own: it is carried out once by a kernel that is made for these. Not for
  // instructions without a kernel.
  std::optional<OpAttrs> attrs{};
};

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Called before an instruction, when what it reads is there.
  virtual IssueChange before(const ObservedIssue& issue) = 0;
  // Called when an instruction has written its results: at once, or, for collectives, messages, copies and transfers of
  // drives, before the first instruction that waits for them.
  virtual void after(const ObservedIssue& issue) = 0;
};

// Tells an observer of a step: finds out which operations are complete when an instruction has waited.
class ObservedStep {
 public:
  // The caller must keep all arguments alive.
  ObservedStep(StepObserver& observer, const Plan& plan, const Arenas& arenas,
               const StepState& state);

  // `index`: of the issue in the order of the plan.
  IssueChange before(size_t index) { return observer_.before(issue(index)); }
  void after(size_t index) { observer_.after(issue(index)); }
  // Reports the operations that have ended, in the order in which they were posted: `counts` has, by channel, how many of
  // its operations have ended since the step began.
  void completed(std::span<const int32_t> counts);

 private:
  ObservedIssue issue(size_t index) const { return {plan_, arenas_, state_, plan_.order[index]}; }

  StepObserver& observer_;
  const Plan& plan_;
  const Arenas& arenas_;
  const StepState& state_;
  std::vector<std::vector<size_t>> posted_;  // by channel: indices of the issues that post there
  std::vector<size_t> reported_;             // by channel: how many have been
};

}  // namespace dstrain
