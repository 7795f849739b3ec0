// Lion (Chen et al., 2023): the sign of a blend of momentum and gradient, with decoupled weight decay.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

inline constexpr OptimizerRule lion{
    .kind = OptimizerKind::lion,
    .name = [](const OptimizerConfig&) -> std::string_view { return "Lion"; },
    .slots = std::span(kMoments).first<1>(),
    .begin =
        [](UnitUpdate& update) {
          for (const UpdateRun& run : update.runs())
            update.emit_update(OpKind::lion,
                               LionAttrs{.weight_decay = run.settings.weight_decay,
                                         .lr_scale = run.settings.lr_scale},
                               run.range, 1);
        },
    .kept_share = &OptimizerConfig::beta2,
    .has_betas = true,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)}};
    },
};

}  // namespace dstrain::optimizers
