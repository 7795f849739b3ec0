// SGD as torch.optim.SGD has it, with momentum or without.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

inline constexpr SlotRule kSgdMomentum[] = {{.name = "momentum"}};

inline constexpr OptimizerRule sgd{
    .kind = OptimizerKind::sgd,
    .name = [](const OptimizerConfig&) -> std::string_view { return "SGD"; },
    .slots = kSgdMomentum,
    .has_state = [](const OptimizerConfig& o) { return o.momentum != 0; },
    .begin =
        [](UnitUpdate& update) {
          const OptimizerConfig& o = update.config();
          for (const UpdateRun& run : update.runs())
            update.emit_update(OpKind::sgd,
                               SgdAttrs{.weight_decay = run.settings.weight_decay,
                                        .momentum = static_cast<float>(o.momentum),
                                        .dampening = static_cast<float>(o.dampening),
                                        .nesterov = o.nesterov,
                                        .lr_scale = run.settings.lr_scale},
                               run.range, 1);
        },
    .kept_share = &OptimizerConfig::momentum,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"momentum", fmt::format("{}", o.momentum)},
              {"dampening", fmt::format("{}", o.dampening)},
              {"nesterov", fmt::format("{}", o.nesterov)}};
    },
};

}  // namespace dstrain::optimizers
