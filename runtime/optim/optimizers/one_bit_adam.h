// 1-bit Adam (Tang et al., 2021) as DeepSpeed has it: AdamW without bias corrections, whose second moment is frozen
// after freeze_step updates. From then on ranks send their momenta as signs instead of adding gradients.
#pragma once

#include <fmt/format.h>

#include <memory>

#include "runtime/optim/optimizer_rule.h"
#include "runtime/optim/optimizers/freeze_step.h"

namespace dstrain::optimizers {

// Appends the step of AdamW without bias corrections.
void emit_adam(UnitUpdate& update);
// Returns the constants of that step once the second moment is frozen.
FrozenAdamAttrs frozen_adam_attrs(const UnitUpdate& update, const UpdateRun& run);
// Appends the same step by a momentum that is known, with a frozen second moment.
void emit_frozen_adam(UnitUpdate& update);
// Makes the update with a frozen second moment (SignRule::update).
std::unique_ptr<SignUpdate> send_momentum(UnitUpdate& update, StepKind kind);

inline constexpr SignRule kMomentumSigns{
    .update = send_momentum,
    .freeze_step = [](const OptimizerConfig& o) { return o.freeze_step; },
    .freeze_key = "optimizer.params.freeze_step",
    .never_freeze = never_freeze,
    .shorten = freeze_soon,
};

inline constexpr SlotRule kOneBitState[] = {{.name = "exp_avg", .gathered = true},
                                            {.name = "exp_avg_sq"}};

inline constexpr OptimizerRule one_bit_adam{
    .kind = OptimizerKind::one_bit_adam,
    .name = [](const OptimizerConfig&) -> std::string_view { return "OneBitAdam"; },
    .slots = kOneBitState,
    .begin = emit_adam,
    .signs = &kMomentumSigns,
    .kept_share = &OptimizerConfig::beta2,
    .has_betas = true,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
              {"eps", fmt::format("{}", o.eps)},
              {"freeze_step", fmt::format("{}", o.freeze_step)}};
    },
};

}  // namespace dstrain::optimizers
