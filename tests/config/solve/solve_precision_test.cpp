#include "runtime/config/solve/solve_precision.h"

#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("precision: fp16 scales its loss, dynamically unless a scale is given") {
  const Job dynamic = ask(trains_with(R"("fp16": {"enabled": true, "initial_scale_power": 12,
    "loss_scale_window": 500, "hysteresis": 1, "consecutive_hysteresis": true, "min_loss_scale": 4})"))
                          .job();
  CHECK(dynamic.dtype == DType::f16);
  CHECK(dynamic.skip_on_overflow);
  CHECK(dynamic.loss_scale == LossScaleConfig{true, 4096, 500, 1, true, 4});
  const Job fixed = ask(trains_with(R"("fp16": {"enabled": true, "loss_scale": 512})")).job();
  CHECK_FALSE(fixed.loss_scale.dynamic);
  CHECK(fixed.loss_scale.initial == 512);
  CHECK(ask(trains_with(R"("fp16": {"enabled": true})")).job().loss_scale ==
        LossScaleConfig{true, 65536, 1000, 2, false, 1});
  CHECK(ask(trains_with("")).job().loss_scale == LossScaleConfig{});
}

TEST_CASE("precision: bf16 skips steps that overflow unless told not to") {
  CHECK(ask(trains_with(R"("bf16": {"enabled": true})")).job().skip_on_overflow);
  CHECK_FALSE(ask(trains_with(R"("bf16": {"enabled": true, "check_grad_overflow": false})"))
                  .job()
                  .skip_on_overflow);
}

TEST_CASE("precision: gradients travel in the run's type unless told otherwise") {
  CHECK(ask(trains_with(R"("bf16": {"enabled": true})")).job().wire_dtype == DType::bf16);
  CHECK(ask(trains_with(R"("bf16": {"enabled": true}, "communication_data_type": "FP32")"))
            .job()
            .wire_dtype == DType::f32);
  CHECK(ask(trains_with(R"("communication_data_type": "half")")).job().wire_dtype == DType::f16);
}

TEST_CASE("precision: gradients are held in fp32 unless told otherwise") {
  const std::string bf16 = R"("bf16": {"enabled": true})";
  CHECK(ask(trains_with(bf16)).job().grad_dtype == DType::f32);
  CHECK(
      ask(trains_with(bf16 + R"(, "data_types": {"grad_accum_dtype": "BF16"})")).job().grad_dtype ==
      DType::bf16);
}

TEST_CASE("precision: what is said of it") {
  const auto [members, key, expected] = GENERATE(table<std::string, std::string, std::string>({
      {R"("fp16": {"enabled": true}, "bf16": {"enabled": true})", "bf16.enabled",
       "error: fp16 and bf16 cannot both be enabled: set one of them to false"},
      {R"("bf16": {"enabled": true}, "data_types": {"param_dtype": "fp16"})",
       "data_types.param_dtype",
       "error: fp16 does not agree with the fp16 and bf16 sections, which say bf16"},
      {R"("fp16": {"enabled": "false", "loss_scale": 0})", "fp16.loss_scale",
       "no_effect: fp16 is off"},
      {R"("fp16": {"enabled": true, "loss_scale": 8, "hysteresis": 2})", "fp16.hysteresis",
       "no_effect: the loss scale is static"},
      {R"("fp16": {"enabled": true, "min_loss_scale": 0})", "fp16.min_loss_scale", "honoured"},
      {R"("fp16": {"enabled": true, "loss_scale_window": 0})", "fp16.loss_scale_window",
       "error: expected an integer above 0: the loss scale is dynamic"},
      {R"("fp16": {"enabled": true, "loss_scale": 8, "loss_scale_window": 0})",
       "fp16.loss_scale_window", "no_effect: the loss scale is static"},
      {R"("fp16": {"enabled": false, "min_loss_scale": 0.0})", "fp16.min_loss_scale",
       "no_effect: fp16 is off"},
      {R"("fp16": {"enabled": true, "min_loss_scale": 0.5})", "fp16.min_loss_scale",
       "error: expected an integer of at least 0, found 0.5"},
      {R"("fp16": {"enabled": true, "min_loss_scale": 1024, "initial_scale_power": 8})",
       "fp16.min_loss_scale",
       "error: 1024 is above the first scale, 2 to the initial_scale_power (256)"},
      {R"("fp16": {"enabled": true, "loss_scale": -1})", "fp16.loss_scale",
       "error: expected a number of at least 0, found -1"},
      {R"("fp16": {"enabled": true, "loss_scale": 1e-39})", "fp16.loss_scale",
       "error: expected 0, which makes it dynamic, or a number from 1.2e-38, as fp32 gradients are "
       "divided by it; found 1e-39"},
      {R"("fp16": {"enabled": true, "loss_scale": 1.2e-38})", "fp16.loss_scale", "honoured"},
      {R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true})",
       "fp16.fp16_master_weights_and_grads", "honoured"},
      {R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})",
       "bf16.bf16_master_weights_and_grads", "honoured"},
      {R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true})",
       "bf16.bf16_optimizer_states", "honoured"},
      {R"("bf16": {"enabled": true, "bf16_optimizer_states": true})", "bf16.bf16_optimizer_states",
       "error: needs bf16_master_weights_and_grads"},
      {R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true},
          "optimizer": {"type": "Lion", "params": {}})",
       "bf16.bf16_master_weights_and_grads", "error: 16-bit masters need Adam or AdamW"},
      {R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true},
          "dstrain": {"comm_hook": {"type": "post_localSGD"}})",
       "bf16.bf16_master_weights_and_grads",
       "error: post_localSGD averages fp32 masters: use false, or noop"},
      {R"("bf16": {"enabled": false, "bf16_optimizer_states": true})", "bf16.bf16_optimizer_states",
       "no_effect: bf16 is off"},
  }));
  INFO(members);
  CHECK(verdict(ask(trains_with(members)).check(), key) == expected);
}

TEST_CASE("precision: 16-bit masters") {
  const Job usual = ask(trains_with(R"("bf16": {"enabled": true})")).job();
  CHECK(usual.master_dtype == DType::f32);
  CHECK(usual.state_dtype == DType::f32);
  const auto masters = [](const std::string& more, const std::string& outside = "") {
    return ask(trains_with(R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true)" +
                           more + "}" + outside))
        .job();
  };
  const Job job = masters("");
  CHECK(job.master_dtype == DType::bf16);
  CHECK(job.state_dtype == DType::f32);
  CHECK(job.grad_dtype == DType::bf16);
  CHECK(masters(R"(, "bf16_optimizer_states": true)").state_dtype == DType::bf16);
  CHECK(masters("", R"(, "data_types": {"grad_accum_dtype": "fp32"})").grad_dtype == DType::f32);
  const Job half =
      ask(trains_with(R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true})")).job();
  CHECK(half.master_dtype == DType::f16);
  CHECK(half.grad_dtype == DType::f16);
}
