// 0/1 Adam (Lu et al., 2022) as DeepSpeed has it: AdamW without bias corrections, whose second moment is updated at
// growing intervals and then frozen. From then on ranks take local steps, which they synchronise at growing intervals
// (runtime/optim/zero_one_steps.h).
#pragma once

#include <fmt/format.h>

#include <memory>

#include "runtime/optim/optimizers/one_bit_adam.h"

namespace dstrain::optimizers {

// Makes the update of steps in which no gradients travel whole (OptimizerRule::send_signs).
std::unique_ptr<SignUpdate> send_local_steps(UnitUpdate& update, StepKind kind);

inline constexpr OptimizerRule zero_one_adam{
    .kind = OptimizerKind::zero_one_adam,
    .name = [](const OptimizerConfig&) -> std::string_view { return "ZeroOneAdam"; },
    .slots = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}},
    .begin = emit_adam,
    .send_signs = send_local_steps,
    .local_steps = true,
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
