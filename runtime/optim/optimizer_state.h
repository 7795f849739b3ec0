// What an optimizer's ops read of the step state.
#pragma once

#include "runtime/config/job.h"
#include "runtime/core/step_state.h"

namespace dstrain {

// Writes it for update number t = `state.applied_steps` + 1: the learning rates and betas of the schedule; Adam's bias
// corrections 1 - beta^t of these betas, computed in double, or 1 where the optimizer has none; and with local
// steps `local_lr` and `drop_errors`.
void set_optimizer_state(const Job& job, StepState& state);

}  // namespace dstrain
