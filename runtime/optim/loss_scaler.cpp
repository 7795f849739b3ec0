#include "runtime/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

void shrink(StepState& state, const LossScaleConfig& config) {
  if (config.hysteresis > 1 && state.hysteresis > 1) {
    --state.hysteresis;
    return;
  }
  if (static_cast<double>(state.loss_scale) <= config.minimum) {
    fail_run(
        "step {}: Current loss scale already at minimum - cannot decrease scale anymore. Exiting "
        "run. The gradients hold inf or nan at loss scale {} (fp16.min_loss_scale {}): lower the "
        "learning rate, or train in bf16",
        state.step, state.loss_scale, config.minimum);
  }
  state.next_loss_scale =
      static_cast<float>(std::max(static_cast<double>(state.loss_scale) / 2, config.minimum));
}

void grow(StepState& state, const LossScaleConfig& config) {
  if (config.consecutive_hysteresis) state.hysteresis = config.hysteresis;
  const int64_t clean = state.scaler_iteration - state.last_overflow - 1;
  if (clean <= 0 || clean % config.window != 0) return;
  state.hysteresis = config.hysteresis;
  // A run whose gradients are all zero never overflows; its scale must stay a number.
  const float doubled = state.loss_scale * 2;
  if (std::isfinite(doubled)) state.next_loss_scale = doubled;
}

}  // namespace

void init_loss_scale(StepState& state, const LossScaleConfig& config) {
  state.loss_scale = static_cast<float>(config.initial);
  state.next_loss_scale = state.loss_scale;
  state.hysteresis = config.hysteresis;
  state.last_overflow = -1;
  state.scaler_iteration = 0;
}

void update_loss_scale(StepState& state, const LossScaleConfig& config, bool overflow) {
  state.next_loss_scale = state.loss_scale;
  if (config.dynamic) {
    if (overflow) {
      shrink(state, config);
    } else {
      grow(state, config);
    }
  }
  if (overflow) state.last_overflow = state.scaler_iteration;
  ++state.scaler_iteration;
}

}  // namespace dstrain
