// Muon (Jordan et al., 2024) with DeepSpeed's keys: hidden matrices move along their momentum, orthogonalised; AdamW
// updates the other parameters. What is orthogonalised is the clipped gradient's momentum, once per step, in f32.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

// As in DeepSpeed: matrices whose names hold neither "embed" nor "lm_head", in any case.
inline bool is_hidden_matrix(std::string_view name, const Shape& shape) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return shape.rank == 2 && lower.find("embed") == std::string::npos &&
         lower.find("lm_head") == std::string::npos;
}

inline constexpr MatrixRule kMuonMatrices{
    .takes = is_hidden_matrix,
    .direction_op = OpKind::muon_momentum,
    .direction_attrs = [](const OptimizerConfig& o) -> OpAttrs {
      return MuonMomentumAttrs{.momentum = o.momentum};
    },
    .whole_op = OpKind::orthogonalize,
    .whole_attrs = [](const OptimizerConfig& o) -> OpAttrs {
      return OrthogonalizeAttrs{.gram = o.gram};
    },
    .step_op = OpKind::muon,
    .step_attrs = [](const OptimizerConfig&, const GroupSettings& group,
                     const Shape& shape) -> OpAttrs {
      const double ratio = static_cast<double>(shape[0]) / static_cast<double>(shape[1]);
      return MuonAttrs{.weight_decay = group.weight_decay,
                       .scale = static_cast<float>(std::sqrt(std::max(1.0, ratio))),
                       .lr_scale = group.lr_scale};
    },
};

inline constexpr OptimizerRule muon{
    .kind = OptimizerKind::muon,
    .name = [](const OptimizerConfig&) -> std::string_view { return "Muon"; },
    .slots = {"exp_avg", "exp_avg_sq"},
    .op = OpKind::adam,
    .attrs = [](const OptimizerConfig& o, const GroupSettings& group) -> OpAttrs {
      return AdamAttrs{.eps = static_cast<float>(o.eps),
                       .weight_decay = group.weight_decay,
                       .decoupled_decay = true,
                       .beside_muon = true,
                       .lr_scale = group.lr_scale};
    },
    .matrices = &kMuonMatrices,
    .corrects_bias = true,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"momentum", fmt::format("{}", o.momentum)},
              {"ns_method", o.gram ? "gram" : "standard"},
              {"adam_lr", fmt::format("{}", o.adam_lr)},
              {"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
              {"eps", fmt::format("{}", o.eps)}};
    },
};

}  // namespace dstrain::optimizers
