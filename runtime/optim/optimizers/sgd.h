// SGD as torch.optim.SGD has it, with momentum or without.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

inline constexpr OptimizerRule sgd{
    .kind = OptimizerKind::sgd,
    .name = [](const OptimizerConfig&) -> std::string_view { return "SGD"; },
    .slots = {"momentum"},
    .has_state = [](const OptimizerConfig& o) { return o.momentum != 0; },
    .op = OpKind::sgd,
    .attrs = [](const OptimizerConfig& o, const GroupSettings& group) -> OpAttrs {
      return SgdAttrs{.weight_decay = group.weight_decay,
                      .momentum = static_cast<float>(o.momentum),
                      .dampening = static_cast<float>(o.dampening),
                      .nesterov = o.nesterov,
                      .lr_scale = group.lr_scale};
    },
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"momentum", fmt::format("{}", o.momentum)},
              {"dampening", fmt::format("{}", o.dampening)},
              {"nesterov", fmt::format("{}", o.nesterov)}};
    },
};

}  // namespace dstrain::optimizers
