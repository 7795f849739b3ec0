#include "runtime/optim/loss_scaler.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

LossScaleConfig dynamic_scale(double initial, int64_t window, int hysteresis) {
  LossScaleConfig c;
  c.dynamic = true;
  c.initial = initial;
  c.window = window;
  c.hysteresis = hysteresis;
  return c;
}

// One step as in the trainer: the update, then the next scale becomes the current one.
struct Scaler {
  LossScaleConfig config;
  StepState state;

  explicit Scaler(const LossScaleConfig& c) : config(c) { init_loss_scale(state, config); }

  float step(bool overflow) {
    const float used = state.loss_scale;
    advance_loss_scale(state, config, overflow);
    check_loss_scale(state, config);
    CHECK(state.loss_scale == used);
    return state.loss_scale = state.next_loss_scale;
  }
};

TEST_CASE("the scaler starts at its initial scale with full hysteresis") {
  const Scaler s(dynamic_scale(65536, 1000, 2));
  CHECK(s.state.loss_scale == 65536.0f);
  CHECK(s.state.next_loss_scale == 65536.0f);
  CHECK(s.state.hysteresis == 2);
  CHECK(s.state.last_overflow == -1);
  CHECK(s.state.scaler_iteration == 0);
}

TEST_CASE("the scaler follows DeepSpeed's ZeRO trace") {
  Scaler s(dynamic_scale(65536, 3, 2));
  CHECK(s.step(true) == 65536.0f);
  CHECK(s.state.hysteresis == 1);
  CHECK(s.step(true) == 32768.0f);
  CHECK(s.step(true) == 16384.0f);
  for (int i = 0; i < 3; ++i) {
    CHECK(s.step(false) == 16384.0f);
    CHECK(s.state.hysteresis == 1);
  }
  CHECK(s.step(false) == 32768.0f);
  CHECK(s.state.hysteresis == 2);
  CHECK(s.state.last_overflow == 2);
  CHECK(s.state.scaler_iteration == 7);
}

TEST_CASE("the first growth comes when a whole window has passed without overflow") {
  Scaler s(dynamic_scale(8, 3, 1));
  const std::vector<float> after = {8, 8, 8, 16, 16, 16, 32};  // s = it - last - 1 = it
  for (float expected : after) CHECK(s.step(false) == expected);
}

TEST_CASE("an overflow at the minimum ends the run and says what to do") {
  Scaler s(dynamic_scale(2, 1000, 1));
  CHECK(s.step(true) == 1.0f);
  s.state.step = 2;
  std::string message;
  try {
    s.step(true);
  } catch (const RunError& e) {
    message = e.what();
  }
  CHECK_THAT(message, Catch::Contains("Current loss scale already at minimum - cannot decrease "
                                      "scale anymore. Exiting run."));
  CHECK_THAT(message, Catch::StartsWith("step 2: "));
  CHECK_THAT(message, Catch::Contains("min_loss_scale 1") && Catch::Contains("bf16"));
  CHECK(s.state.scaler_iteration == 1);
}

TEST_CASE("the scale never falls below its minimum") {
  LossScaleConfig c = dynamic_scale(8, 1000, 1);
  c.minimum = 3;
  Scaler s(c);
  CHECK(s.step(true) == 4.0f);
  CHECK(s.step(true) == 3.0f);
  CHECK_THROWS_AS(s.step(true), RunError);
}

TEST_CASE("hysteresis refills after every good step only when it is consecutive") {
  LossScaleConfig c = dynamic_scale(64, 1000, 2);
  Scaler plain(c);
  plain.step(true);
  plain.step(false);
  CHECK(plain.step(true) == 32.0f);
  c.consecutive_hysteresis = true;
  Scaler consecutive(c);
  consecutive.step(true);
  consecutive.step(false);
  CHECK(consecutive.step(true) == 64.0f);
  CHECK(consecutive.step(true) == 32.0f);
}

TEST_CASE("a growing scale is written beside the one that the backward used") {
  StepState state;
  const LossScaleConfig c = dynamic_scale(4, 1, 1);
  init_loss_scale(state, c);
  advance_loss_scale(state, c, false);
  state.loss_scale = state.next_loss_scale;
  advance_loss_scale(state, c, false);
  CHECK(state.loss_scale == 4.0f);
  CHECK(state.next_loss_scale == 8.0f);
}

TEST_CASE("a static scale never moves and never ends the run") {
  LossScaleConfig c;
  c.initial = 128;
  Scaler s(c);
  for (bool overflow : {true, true, true, false, true}) CHECK(s.step(overflow) == 128.0f);
  CHECK(s.state.scaler_iteration == 5);
}

TEST_CASE("growth stops before the scale stops being a number") {
  Scaler s(dynamic_scale(0x1p126, 1, 1));
  for (int i = 0; i < 5; ++i) s.step(false);
  CHECK(s.state.loss_scale == 0x1p127f);
}

}  // namespace
}  // namespace dstrain
