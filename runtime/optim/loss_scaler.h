// Dynamic loss scaling of fp16 runs on the host. The update of the scale is in runtime/core/step_rules.h, which
// devices share.
#pragma once

#include "runtime/core/step_rules.h"

namespace dstrain {

// Sets the state before the first step: the initial scale, full hysteresis, no overflow.
void init_loss_scale(StepState& state, const LossScaleConfig& config);

// Throws RunError if the step overflowed while the scale was at its minimum.
void check_loss_scale(const StepState& state, const LossScaleConfig& config);

}  // namespace dstrain
