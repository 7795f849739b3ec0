// Adam, and AdamW, whose weight decay is decoupled from the moments.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

inline constexpr OptimizerRule adam{
    .kind = OptimizerKind::adam,
    .name = [](const OptimizerConfig& o) -> std::string_view {
      return o.decoupled_decay ? "AdamW" : "Adam";
    },
    .slots = kMoments,
    .begin =
        [](UnitUpdate& update) {
          const OptimizerConfig& o = update.config();
          for (const UpdateRun& run : update.runs())
            update.emit_update(OpKind::adam,
                               AdamAttrs{.eps = static_cast<float>(o.eps),
                                         .weight_decay = run.settings.weight_decay,
                                         .decoupled_decay = o.decoupled_decay,
                                         .lr_scale = run.settings.lr_scale},
                               run.range, 2);
        },
    .kept_share = &OptimizerConfig::beta2,
    .has_betas = true,
    .corrects_bias = true,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
              {"eps", fmt::format("{}", o.eps)},
              {"bias_correction", fmt::format("{}", o.bias_correction)}};
    },
};

}  // namespace dstrain::optimizers
