#include "runtime/optim/loss_scaler.h"

#include "runtime/core/error.h"

namespace dstrain {

void init_loss_scale(StepState& state, const LossScaleConfig& config) {
  state.loss_scale = static_cast<float>(config.initial);
  state.next_loss_scale = state.loss_scale;
  state.hysteresis = config.hysteresis;
  state.last_overflow = -1;
  state.scaler_iteration = 0;
}

void check_loss_scale(const StepState& state, const LossScaleConfig& config) {
  if (state.scale_exhausted == 0) return;
  fail_run(
      "step {}: Current loss scale already at minimum - cannot decrease scale anymore. Exiting "
      "run. The gradients hold inf or nan at loss scale {} (fp16.min_loss_scale {}): lower the "
      "learning rate, or train in bf16",
      state.step, state.loss_scale, config.minimum);
}

}  // namespace dstrain
