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

// Returns whether the first regular step since ranks have begun or resumed, and each before it that was skipped, has
// the kind `whole_momentum` in its place. Checkpoints have a slice of the momentum from each rank, as before the second
// moment was frozen. Pure.
bool gathers_momentum(const Job& job);

// Returns the kind of the step that follows `applied_steps` updates. Skipped steps do not count, so the step after a
// skipped one has its kind, and a checkpoint's number of updates says how a resumed run goes on. `last`: the kind of the
// update that ranks have made last since they have begun or resumed, or nothing; for gathers_momentum(). Pure.
StepKind kind_of_step(const Job& job, int64_t applied_steps,
                      std::optional<StepKind> last = StepKind::regular);

// Returns whether ranks keep their own gradients in steps of this kind: they send something as signs, or nothing.
bool keeps_gradients(const Job& job, StepKind kind);
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
