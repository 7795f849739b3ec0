// What each step of 0/1 Adam (Lu et al., 2022) does: pure functions of the number of updates before it, so that skipped
// steps do not count and a resumed run goes on as it would have.
#pragma once

#include <cstdint>

#include "runtime/config/job.h"

namespace dstrain {

// What ranks send in a step.
enum class ZeroOneStep {
  gradients,       // whole gradients; the second moment is updated too
  gradient_signs,  // gradients as signs; the second moment stays
  local,           // nothing: each rank moves by its own gradients
  synchronise,     // local too, and then the sum of the local steps as signs
};

// Returns what the step after `applied_steps` updates does. Up to update var_freeze_step, gradients travel whole at
// intervals of 1, 2, 4, ... steps, var_update_scaler times each, as in the paper. From then on the steps are counted
// anew, and each whose number is a multiple of the interval synchronises: the interval begins with 1, doubles after
// each local_step_scaler steps, and is at most local_step_clipper.
ZeroOneStep zero_one_step(const ZeroOneConfig& config, int64_t applied_steps);

// Returns how many steps directly before the step after `applied_steps` updates are local and not synchronised.
int64_t open_local_steps(const ZeroOneConfig& config, int64_t applied_steps);

// Returns the sum of the learning rates of these steps.
double open_local_rates(const Job& job, int64_t applied_steps);

}  // namespace dstrain
