// Lamb (You et al., 2020) with DeepSpeed's limits of the trust ratio: Adam's direction, scaled for each parameter by
// the norm of its weights over that of the direction. As in DeepSpeed the bias corrections scale the whole direction.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

inline constexpr OptimizerRule lamb{
    .kind = OptimizerKind::lamb,
    .name = [](const OptimizerConfig&) -> std::string_view { return "Lamb"; },
    .slots = {"exp_avg", "exp_avg_sq"},
    .op = OpKind::lamb_direction,
    .attrs = [](const OptimizerConfig& o, const GroupSettings& group) -> OpAttrs {
      return LambDirectionAttrs{.eps = static_cast<float>(o.eps),
                                .weight_decay = group.weight_decay,
                                .eps_inside_sqrt = o.eps_inside_sqrt};
    },
    .scaled_attrs = [](const OptimizerConfig& o, const GroupSettings& group, int64_t parameter,
                       int64_t parameters) -> OpAttrs {
      return LambAttrs{.min_coeff = static_cast<float>(o.min_coeff),
                       .max_coeff = static_cast<float>(o.max_coeff),
                       .parameter = parameter,
                       .parameters = parameters,
                       .lr_scale = group.lr_scale};
    },
    .scaled_op = OpKind::lamb,
    .has_betas = true,
    .corrects_bias = true,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
              {"eps", fmt::format("{}", o.eps)},
              {"bias_correction", fmt::format("{}", o.bias_correction)},
              {"max_coeff", fmt::format("{}", o.max_coeff)},
              {"min_coeff", fmt::format("{}", o.min_coeff)},
              {"eps_inside_sqrt", fmt::format("{}", o.eps_inside_sqrt)}};
    },
};

}  // namespace dstrain::optimizers
