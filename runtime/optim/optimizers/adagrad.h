// Adagrad as torch.optim.Adagrad has it, with an accumulator that begins at 0 and a learning rate without decay of its
// own.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

inline constexpr OptimizerRule adagrad{
    .kind = OptimizerKind::adagrad,
    .name = [](const OptimizerConfig&) -> std::string_view { return "Adagrad"; },
    .slots = {"sum"},
    .op = OpKind::adagrad,
    .attrs = [](const OptimizerConfig& o, float weight_decay) -> OpAttrs {
      return AdagradAttrs{.eps = static_cast<float>(o.eps), .weight_decay = weight_decay};
    },
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"eps", fmt::format("{}", o.eps)}};
    },
};

}  // namespace dstrain::optimizers
