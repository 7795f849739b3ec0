// Lamb (You et al., 2020) with DeepSpeed's limits of the trust ratio: Adam's direction, scaled for each parameter by
// the norm of its weights over that of the direction. As in DeepSpeed the bias corrections scale the whole direction.
#pragma once

#include <fmt/format.h>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

// Adds the buffer of the directions of the elements that this rank updates.
inline void add_direction(UnitUpdate& update) {
  update.buffers().direction =
      update.held_as_state(update.add_buffer("direction", update.updated().size(), Lifetime::step));
}

// Appends the directions.
inline void emit_directions(UnitUpdate& update) {
  const OptimizerConfig& o = update.config();
  add_direction(update);
  for (const UpdateRun& run : update.runs())
    update.emit(
        OpKind::lamb_direction,
        LambDirectionAttrs{.eps = static_cast<float>(o.eps),
                           .weight_decay = run.settings.weight_decay,
                           .eps_inside_sqrt = o.eps_inside_sqrt},
        {update.gradients(run.range), update.master(run.range)},
        {update.slot(0, run.range), update.slot(1, run.range), update.direction(run.range)});
}

// Appends the square sums of the weights and of the direction of every parameter. As for the gradient's norm each rank
// adds the slice that it owns, whatever it updates, so that all stages give the same bits. Returns the pairs of all ranks,
// those of a tensor group too, which have parts of the parameters or slices of them.
inline BufferId emit_square_sums(UnitUpdate& update) {
  const auto pairs = 2 * static_cast<int64_t>(update.parameters().size());
  const auto [rank, ranks] = update.number_among(RankSet::parts);
  const BufferId all = update.add_buffer("trust", ranks * pairs, Lifetime::step, DType::f64);
  const BufferId mine = update.program().view(all, rank * pairs, pairs);
  update.emit(OpKind::zero, {}, {}, {mine});
  int64_t next = rank * pairs;
  for (const UpdateRun& p : update.parameters())
    for (const auto values : {&UnitUpdate::master, &UnitUpdate::direction}) {
      const BufferId sum = update.program().view(all, next++, 1);
      const Range range = common(update.slice_of(update.rank()), p.range);
      if (range.size() > 0) update.emit(OpKind::sum_squares, {}, {(update.*values)(range)}, {sum});
    }
  if (ranks > 1) update.emit_gather(RankSet::parts, mine, all);
  return all;
}

// Appends the step of each parameter along its direction.
inline void emit_steps(UnitUpdate& update, BufferId sums) {
  const std::vector<UpdateRun>& all = update.parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    const Range range = common(update.updated(), all[i].range);
    if (range.size() <= 0) continue;
    update.emit(OpKind::lamb,
                LambAttrs{.min_coeff = static_cast<float>(update.config().min_coeff),
                          .max_coeff = static_cast<float>(update.config().max_coeff),
                          .parameter = static_cast<int64_t>(i),
                          .parameters = static_cast<int64_t>(all.size()),
                          .lr_scale = all[i].settings.lr_scale},
                {update.direction(range), sums}, {update.master(range), update.copy(range)});
  }
}

inline constexpr OptimizerRule lamb{
    .kind = OptimizerKind::lamb,
    .name = [](const OptimizerConfig&) -> std::string_view { return "Lamb"; },
    .slots = kMoments,
    .begin = emit_directions,
    .finish = [](UnitUpdate& update) { emit_steps(update, emit_square_sums(update)); },
    .kept_share = &OptimizerConfig::beta2,
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
