// Kinds of training steps. A run whose steps differ in what they send or update has a plan for each kind. All of them
// work on the same persistent memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/optim/step_kind.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

// Returns the kinds of a job's steps; the first is `regular`. Pure.
std::vector<StepKind> step_kinds(const Job& job);

// Returns whether a step of the kind `whole_momentum` takes the place of the first regular one after ranks have begun
// or resumed: each of them has its slice of the momentum then, as steps with whole gradients and checkpoints leave it,
// and regular steps need all of it. A step that is skipped is followed by another one of this kind. Pure.
bool gathers_momentum(const Job& job);

// Returns the kind of the step that follows `applied_steps` updates. Skipped steps do not count, so the step after a
// skipped one has its kind, and a checkpoint's number of updates says how a resumed run goes on. `last`: the kind of
// the newest step that was not skipped since ranks have begun or resumed, or nothing; it counts where
// gathers_momentum(). Pure.
StepKind kind_of_step(const Job& job, int64_t applied_steps, std::optional<StepKind> last);

// Returns whether something travels as signs in steps of this kind.
bool sends_signs(const Job& job, const Place& place, StepKind kind);

// Whether groups of ranks have different weights or optimizer state after a number of updates.
struct GroupsDiffer {
  bool weights = false;
  bool state = false;  // of the optimizer
};
// Returns what differs after `applied_steps` updates. Pure.
GroupsDiffer groups_differ(const Job& job, int64_t applied_steps);

// Returns which of a job's steps have a kind: "steps 1 to 999".
std::string steps_text(const Job& job, StepKind kind);

}  // namespace dstrain
