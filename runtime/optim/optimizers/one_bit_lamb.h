// 1-bit Lamb (Li et al., 2021) as DeepSpeed has it: Lamb without bias corrections, whose second moment and trust ratios
// are frozen after freeze_step updates. From then on ranks send their momenta as signs instead of adding gradients, and
// a factor of each parameter follows what its second moment would be (runtime/plan/codecs/lamb_momentum.cpp).
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizers/lamb.h"

namespace dstrain::optimizers {

inline constexpr OptimizerRule one_bit_lamb{
    .kind = OptimizerKind::one_bit_lamb,
    .name = [](const OptimizerConfig&) -> std::string_view { return "OneBitLamb"; },
    .slots = lamb.slots,
    .begin = lamb.begin,
    .finish =
        [](UnitUpdate& update) {
          const OptimizerConfig& o = update.config();
          const BufferId sums = emit_square_sums(update);
          BufferId& averages = update.buffers().averages;
          averages =
              update.add_buffer("lamb_average", static_cast<int64_t>(update.parameters().size()),
                                Lifetime::persistent);
          update.emit(OpKind::lamb_average,
                      LambAverageAttrs{.min_coeff = static_cast<float>(o.min_coeff),
                                       .max_coeff = static_cast<float>(o.max_coeff),
                                       .beta = static_cast<float>(o.one_bit_lamb.coeff_beta)},
                      {sums}, {averages});
          emit_steps(update, sums);
        },
    .op = OpKind::lamb_direction,
    .scaled_op = OpKind::lamb,
    .frozen_op = OpKind::frozen_lamb_direction,
    .frozen_attrs = [](const OpAttrs& attrs) -> OpAttrs {
      const auto own = attrs_as<LambDirectionAttrs>(attrs);
      return FrozenLambAttrs{.eps = own.eps, .weight_decay = own.weight_decay};
    },
    .slices_frozen = true,
    .has_betas = true,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      const OneBitLambConfig& c = o.one_bit_lamb;
      return {{"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
              {"eps", fmt::format("{}", o.eps)},
              {"max_coeff", fmt::format("{}", o.max_coeff)},
              {"min_coeff", fmt::format("{}", o.min_coeff)},
              {"freeze_step", fmt::format("{}", o.freeze_step)},
              {"coeff_beta", fmt::format("{}", c.coeff_beta)},
              {"factor_max", fmt::format("{}", c.factor_max)},
              {"factor_min", fmt::format("{}", c.factor_min)},
              {"factor_threshold", fmt::format("{}", c.factor_threshold)}};
    },
};

}  // namespace dstrain::optimizers
