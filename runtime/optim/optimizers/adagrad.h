// Adagrad as torch.optim.Adagrad has it, with an accumulator that begins at 0. lr_schedule.h applies its lr_decay.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

inline constexpr SlotRule kSum[] = {{.name = "sum"}};

inline constexpr OptimizerRule adagrad{
    .kind = OptimizerKind::adagrad,
    .name = [](const OptimizerConfig&) -> std::string_view { return "Adagrad"; },
    .slots = kSum,
    .begin =
        [](UnitUpdate& update) {
          const auto eps = static_cast<float>(update.config().eps);
          for (const UpdateRun& run : update.runs())
            update.emit_update(OpKind::adagrad,
                               AdagradAttrs{.eps = eps,
                                            .weight_decay = run.settings.weight_decay,
                                            .lr_scale = run.settings.lr_scale},
                               run.range, 1);
        },
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      OptimizerParams params{{"eps", fmt::format("{}", o.eps)}};
      if (o.lr_decay > 0) params.push_back({"lr_decay", fmt::format("{}", o.lr_decay)});
      return params;
    },
};

}  // namespace dstrain::optimizers
