// The optimizers whose ranks, from some step on, keep their own gradients and send signs, as DeepSpeed has them:
// 1-bit Adam (Tang et al., 2021): AdamW without bias corrections, whose second moment is frozen after freeze_step
//   updates. From then on momenta travel as signs.
// 1-bit Lamb (Li et al., 2021): Lamb without bias corrections, whose second moment and trust ratios are frozen after
//   freeze_step updates. From then on momenta travel as signs, each parameter's scaled to a root mean square of 1, and a
//   factor of each parameter follows what its second moment would be.
// 0/1 Adam (Lu et al., 2022): AdamW without bias corrections, whose second moment is updated at growing intervals, between
//   which gradients travel as signs, and then frozen. From then on ranks take local steps, which they synchronise at
//   growing intervals: what a rank has moved since then travels as signs.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runtime/optim/optimizers/lamb.h"

namespace dstrain {

// What each step of 0/1 Adam does: pure functions of the number of updates before it, so that skipped steps do not count
// and a resumed run goes on as it would have.

// Returns the kinds of steps; the first is `regular`.
std::vector<StepKind> zero_one_kinds(const OptimizerConfig& config);
// Returns the kind of the step after `applied_steps` updates. Up to update var_freeze_step, gradients travel whole at
// intervals of 1, 2, 4, ... steps, var_update_scaler times each, as in the paper. From then on the steps are counted
// anew, and each whose number is a multiple of the interval synchronises (`regular`): the interval begins with 1,
// doubles after each local_step_scaler steps, and is at most local_step_clipper.
StepKind zero_one_step(const ZeroOneConfig& config, int64_t applied_steps);
// Returns which steps have a kind: "steps 1 to 16".
std::string zero_one_text(const OptimizerConfig& config, StepKind kind);
// Returns how many steps directly before the step after `applied_steps` updates are local and not synchronised.
int64_t open_local_steps(const ZeroOneConfig& config, int64_t applied_steps);

namespace optimizers {

// Appends the step of AdamW without bias corrections.
void emit_adam(UnitUpdate& update);
// Appends the second part of a step of Lamb without bias corrections, with the averages of trust ratios.
void emit_averaged_steps(UnitUpdate& update);

// These make the updates of steps without whole gradients (SignRule::update). Where the optimizer is sharded, ranks have
// what travels whole, and where the second moment of every element is above 0, as bits ("exp_avg_sq:U:bits"), which a step
// of the kind `whole_momentum` gathers. 1-bit Adam:
std::unique_ptr<SignUpdate> send_momentum(UnitUpdate& update, StepKind kind);
// 1-bit Lamb. Where the optimizer is sharded, adds "scaled_momentum:U", what came back from ranks.
std::unique_ptr<SignUpdate> send_scaled_momentum(UnitUpdate& update, StepKind kind);
// 0/1 Adam.
std::unique_ptr<SignUpdate> send_local_steps(UnitUpdate& update, StepKind kind);

// The rule of an optimizer that freezes its second moment at OptimizerConfig::freeze_step.
constexpr SignRule frozen_once(std::unique_ptr<SignUpdate> (*update)(UnitUpdate&, StepKind)) {
  return {.update = update,
          .freeze_step = [](const OptimizerConfig& o) { return o.freeze_step; },
          .freeze_key = "optimizer.params.freeze_step",
          .never_freeze = [](OptimizerConfig& o) { o.freeze_step = kNoFreeze; },
          .shorten =
              [](OptimizerConfig& o) {
                o.freeze_step = std::clamp<int64_t>(o.freeze_step, 1, 2);
                return o.freeze_step + 3;
              }};
}
inline constexpr SignRule kMomentumSigns = frozen_once(send_momentum),
                          kScaledMomentumSigns = frozen_once(send_scaled_momentum);

inline constexpr StepPattern kGrowingIntervals{
    .kinds = zero_one_kinds,
    .kind_of_step = [](const OptimizerConfig& o,
                       int64_t applied_steps) { return zero_one_step(o.zero_one, applied_steps); },
    .steps_text = zero_one_text,
};
inline constexpr SignRule kLocalSteps{
    .update = send_local_steps,
    .freeze_step = [](const OptimizerConfig& o) { return o.zero_one.var_freeze_step; },
    .freeze_key = "optimizer.params.var_freeze_step",
    .exact_steps =
        [](const OptimizerConfig& o) {
          return std::min(o.zero_one.var_freeze_step, o.zero_one.var_update_scaler);
        },
    .never_freeze =
        [](OptimizerConfig& o) {
          o.zero_one.var_freeze_step = o.zero_one.var_update_scaler = kNoFreeze;
        },
    .shorten =
        [](OptimizerConfig& o) {
          o.zero_one = {.var_freeze_step = std::clamp<int64_t>(o.zero_one.var_freeze_step, 1, 3),
                        .var_update_scaler = 1,
                        .local_step_scaler = 1,
                        .local_step_clipper = std::min<int64_t>(o.zero_one.local_step_clipper, 2)};
          return o.zero_one.var_freeze_step + 4;
        },
    .open_local_steps =
        [](const OptimizerConfig& o, int64_t applied_steps) {
          return open_local_steps(o.zero_one, applied_steps);
        },
    .pattern = &kGrowingIntervals,
};

inline constexpr SlotRule kOneBitState[] = {{.name = "exp_avg", .gathered = true},
                                            {.name = "exp_avg_sq"}};

// Returns the parameters that all of them have, and those in `more`.
inline OptimizerParams with_moments(const OptimizerConfig& o, OptimizerParams more) {
  more.insert(more.begin(), {{"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
                             {"eps", fmt::format("{}", o.eps)}});
  return more;
}
template <class Number>
OptimizerParam param(std::string_view key, Number value) {
  return {key, fmt::format("{}", value)};
}

inline constexpr OptimizerRule one_bit_adam{
    .kind = OptimizerKind::one_bit_adam,
    .name = [](const OptimizerConfig&) -> std::string_view { return "OneBitAdam"; },
    .slots = kOneBitState,
    .begin = emit_adam,
    .signs = &kMomentumSigns,
    .kept_share = &OptimizerConfig::beta2,
    .has_betas = true,
    .params =
        [](const OptimizerConfig& o) {
          return with_moments(o, {param("freeze_step", o.freeze_step)});
        },
};

inline constexpr OptimizerRule one_bit_lamb{
    .kind = OptimizerKind::one_bit_lamb,
    .name = [](const OptimizerConfig&) -> std::string_view { return "OneBitLamb"; },
    .slots = kMoments,
    .begin = emit_directions,
    .finish = emit_averaged_steps,
    .signs = &kScaledMomentumSigns,
    .kept_share = &OptimizerConfig::beta2,
    .has_betas = true,
    .params =
        [](const OptimizerConfig& o) {
          const OneBitLambConfig& c = o.one_bit_lamb;
          return with_moments(
              o, {param("max_coeff", o.max_coeff), param("min_coeff", o.min_coeff),
                  param("freeze_step", o.freeze_step), param("coeff_beta", c.coeff_beta),
                  param("factor_max", c.factor_max), param("factor_min", c.factor_min),
                  param("factor_threshold", c.factor_threshold)});
        },
};

inline constexpr OptimizerRule zero_one_adam{
    .kind = OptimizerKind::zero_one_adam,
    .name = [](const OptimizerConfig&) -> std::string_view { return "ZeroOneAdam"; },
    .slots = kMoments,
    .begin = emit_adam,
    .signs = &kLocalSteps,
    .kept_share = &OptimizerConfig::beta2,
    .has_betas = true,
    .params =
        [](const OptimizerConfig& o) {
          const ZeroOneConfig& c = o.zero_one;
          return with_moments(o, {param("var_freeze_step", c.var_freeze_step),
                                  param("var_update_scaler", c.var_update_scaler),
                                  param("local_step_scaler", c.local_step_scaler),
                                  param("local_step_clipper", c.local_step_clipper)});
        },
};

}  // namespace optimizers
}  // namespace dstrain
