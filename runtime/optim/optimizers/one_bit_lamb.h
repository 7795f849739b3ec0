// 1-bit Lamb (Li et al., 2021) as DeepSpeed has it: Lamb without bias corrections, whose second moment and trust ratios
// are frozen after freeze_step updates. From then on ranks send their momenta as signs instead of adding gradients, and
// a factor of each parameter follows what its second moment would be (send_scaled_momentum()).
#pragma once

#include <fmt/format.h>

#include <memory>

#include "runtime/optim/optimizers/freeze_step.h"
#include "runtime/optim/optimizers/lamb.h"

namespace dstrain::optimizers {

// Adds the buffer of the averages of trust ratios.
BufferId add_averages(UnitUpdate& update);
// Makes the update with a frozen second moment (SignRule::update). Each rank's share of the momentum travels as
// signs, each parameter's scaled to a root mean square of 1. Adds the codec state "worker_error" and "owner_error" of
// the unit, and "exp_avg_sq_fresh", "lamb_average", "lamb_factor" and "momentum_scale" of each parameter. Where the
// optimizer is sharded, adds "scaled_momentum:U", what came back from ranks, which a step of the kind `whole_momentum`
// begins with the momentum.
std::unique_ptr<SignUpdate> send_scaled_momentum(UnitUpdate& update, StepKind kind);

inline constexpr SignRule kScaledMomentumSigns{
    .update = send_scaled_momentum,
    .freeze_step = [](const OptimizerConfig& o) { return o.freeze_step; },
    .freeze_key = "optimizer.params.freeze_step",
    .never_freeze = never_freeze,
    .shorten = freeze_soon,
};

inline constexpr OptimizerRule one_bit_lamb{
    .kind = OptimizerKind::one_bit_lamb,
    .name = [](const OptimizerConfig&) -> std::string_view { return "OneBitLamb"; },
    .slots = kMoments,
    .begin = emit_directions,
    .finish =
        [](UnitUpdate& update) {
          const BufferId sums = emit_square_sums(update);
          const OptimizerConfig& o = update.config();
          update.emit(OpKind::lamb_average,
                      LambAverageAttrs{.min_coeff = static_cast<float>(o.min_coeff),
                                       .max_coeff = static_cast<float>(o.max_coeff),
                                       .beta = static_cast<float>(o.one_bit_lamb.coeff_beta)},
                      {sums}, {add_averages(update)});
          emit_steps(update, sums);
        },
    .signs = &kScaledMomentumSigns,
    .kept_share = &OptimizerConfig::beta2,
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
