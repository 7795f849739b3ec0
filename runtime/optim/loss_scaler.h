// Dynamic loss scaling of fp16 runs as the host sees it; the transition itself is in
// runtime/core/step_rules.h.
#pragma once

#include "runtime/core/step_rules.h"

namespace dstrain {

// The state before the first step: the initial scale, full hysteresis, no overflow yet.
void init_loss_scale(StepState& state, const LossScaleConfig& config);

// advance_loss_scale, then check_loss_scale.
void update_loss_scale(StepState& state, const LossScaleConfig& config, bool overflow);

// Throws RunError where the step overflowed and the scale was already at its minimum.
void check_loss_scale(const StepState& state, const LossScaleConfig& config);

}  // namespace dstrain
