// 1-bit Adam (Tang et al., 2021) as DeepSpeed has it: AdamW without bias corrections, whose second moment is frozen
// after freeze_step updates. From then on ranks send their momenta as signs instead of adding gradients.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

inline constexpr OptimizerRule one_bit_adam{
    .kind = OptimizerKind::one_bit_adam,
    .name = [](const OptimizerConfig&) -> std::string_view { return "OneBitAdam"; },
    .slots = {"exp_avg", "exp_avg_sq"},
    .begin =
        [](UnitUpdate& update) {
          for (const UpdateRun& run : update.runs())
            update.emit_update(OpKind::adam,
                               AdamAttrs{.eps = static_cast<float>(update.config().eps),
                                         .weight_decay = run.settings.weight_decay},
                               run.range, 2);
        },
    .op = OpKind::adam,
    .frozen_op = OpKind::frozen_adam,
    .frozen_attrs = [](const OpAttrs& attrs) -> OpAttrs {
      const auto own = attrs_as<AdamAttrs>(attrs);
      return FrozenAdamAttrs{.eps = own.eps, .weight_decay = own.weight_decay};
    },
    .slices_frozen = true,
    .has_betas = true,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
              {"eps", fmt::format("{}", o.eps)},
              {"freeze_step", fmt::format("{}", o.freeze_step)}};
    },
};

}  // namespace dstrain::optimizers
