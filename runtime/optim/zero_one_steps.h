// What each step of 0/1 Adam (Lu et al., 2022) does: pure functions of the number of updates before it, so that skipped
// steps do not count and a resumed run goes on as it would have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/optim/step_kind.h"

namespace dstrain {

// Returns the kinds of steps; the first is `regular`.
std::vector<StepKind> zero_one_kinds(const OptimizerConfig& config);

// Returns the kind of the step after `applied_steps` updates. Up to update var_freeze_step, gradients travel whole at
// intervals of 1, 2, 4, ... steps, var_update_scaler times each, as in the paper. From then on the steps are counted
// anew, and each whose number is a multiple of the interval synchronises (`regular`): the interval begins with 1,
// doubles after each local_step_scaler steps, and is at most local_step_clipper.
StepKind zero_one_step(const ZeroOneConfig& config, int64_t applied_steps);

// Returns which steps have a kind: "steps 1 to 16".
std::string zero_one_text(const OptimizerConfig& config, StepKind kind);

// Returns how many steps directly before the step after `applied_steps` updates are local and not synchronised.
int64_t open_local_steps(const ZeroOneConfig& config, int64_t applied_steps);

}  // namespace dstrain
