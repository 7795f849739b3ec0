// Dynamic loss scaling of fp16 runs: DeepSpeed's ZeRO 1-3 behaviour, held at every stage. A pure
// transition over the scaler's fields of the step state.
// Invariant: loss_scale is the scale that this step's backward used and stays untouched, because
// the gradients are unscaled by it; the new value goes to next_loss_scale, which the trainer moves
// over before the next step. (DeepSpeed updates first, and so divides by the wrong scale on a step
// where it grows.)
#pragma once

#include "runtime/config/job.h"
#include "runtime/core/step_state.h"

namespace dstrain {

// The state before the first step: the initial scale, full hysteresis, no overflow yet.
void init_loss_scale(StepState& state, const LossScaleConfig& config);

// Advances the scaler by one step whose gradients did (`overflow`) or did not hold an inf or nan;
// writes next_loss_scale, hysteresis, last_overflow and scaler_iteration. A static scale never
// moves. Throws RunError at an overflow when the scale is already at its minimum; the state then
// is as before.
void update_loss_scale(StepState& state, const LossScaleConfig& config, bool overflow);

}  // namespace dstrain
