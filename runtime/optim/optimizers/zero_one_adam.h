// 0/1 Adam (Lu et al., 2022) as DeepSpeed has it: AdamW without bias corrections, whose second moment is updated at
// growing intervals and then frozen. From then on ranks take local steps, which they synchronise at growing intervals
// (runtime/optim/zero_one_steps.h).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "runtime/optim/optimizers/one_bit_adam.h"
#include "runtime/optim/zero_one_steps.h"

namespace dstrain::optimizers {

// Makes the update of steps in which no gradients travel whole (SignRule::update).
std::unique_ptr<SignUpdate> send_local_steps(UnitUpdate& update, StepKind kind);

inline constexpr StepPattern kGrowingIntervals{
    .kinds = zero_one_kinds,
    .kind_of_step = [](const OptimizerConfig& o,
                       int64_t applied_steps) { return zero_one_step(o.zero_one, applied_steps); },
    .steps_text = zero_one_text,
};

inline constexpr SignRule kLocalSteps{
    .update = send_local_steps,
    .freeze_step = [](const OptimizerConfig& o) { return o.zero_one.var_freeze_step; },
    .freeze_key = "optimizer.params.var_freeze_step",
    .exact_steps =
        [](const OptimizerConfig& o) {
          return std::min(o.zero_one.var_freeze_step, o.zero_one.var_update_scaler);
        },
    .never_freeze =
        [](OptimizerConfig& o) {
          o.zero_one.var_freeze_step = o.zero_one.var_update_scaler = kNoFreeze;
        },
    .shorten =
        [](OptimizerConfig& o) {
          o.zero_one = {.var_freeze_step = std::clamp<int64_t>(o.zero_one.var_freeze_step, 1, 3),
                        .var_update_scaler = 1,
                        .local_step_scaler = 1,
                        .local_step_clipper = std::min<int64_t>(o.zero_one.local_step_clipper, 2)};
          return o.zero_one.var_freeze_step + 4;
        },
    .open_local_steps =
        [](const OptimizerConfig& o, int64_t applied_steps) {
          return open_local_steps(o.zero_one, applied_steps);
        },
    .pattern = &kGrowingIntervals,
};

inline constexpr OptimizerRule zero_one_adam{
    .kind = OptimizerKind::zero_one_adam,
    .name = [](const OptimizerConfig&) -> std::string_view { return "ZeroOneAdam"; },
    .slots = kMoments,
    .begin = emit_adam,
    .signs = &kLocalSteps,
    .kept_share = &OptimizerConfig::beta2,
    .has_betas = true,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
              {"eps", fmt::format("{}", o.eps)},
              {"var_freeze_step", fmt::format("{}", o.zero_one.var_freeze_step)},
              {"var_update_scaler", fmt::format("{}", o.zero_one.var_update_scaler)},
              {"local_step_scaler", fmt::format("{}", o.zero_one.local_step_scaler)},
              {"local_step_clipper", fmt::format("{}", o.zero_one.local_step_clipper)}};
    },
};

}  // namespace dstrain::optimizers
