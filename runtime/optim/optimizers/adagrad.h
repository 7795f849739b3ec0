// Adagrad as torch.optim.Adagrad has it, with an accumulator that begins at 0. lr_schedule.h applies its lr_decay.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

inline constexpr OptimizerRule adagrad{
    .kind = OptimizerKind::adagrad,
    .name = [](const OptimizerConfig&) -> std::string_view { return "Adagrad"; },
    .slots = {"sum"},
    .op = OpKind::adagrad,
    .attrs = [](const OptimizerConfig& o, const GroupSettings& group) -> OpAttrs {
      return AdagradAttrs{.eps = static_cast<float>(o.eps),
                          .weight_decay = group.weight_decay,
                          .lr_scale = group.lr_scale};
    },
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      OptimizerParams params{{"eps", fmt::format("{}", o.eps)}};
      if (o.lr_decay > 0) params.push_back({"lr_decay", fmt::format("{}", o.lr_decay)});
      return params;
    },
};

}  // namespace dstrain::optimizers
