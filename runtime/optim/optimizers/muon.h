// Muon (Jordan et al., 2024) with DeepSpeed's keys: hidden matrices move along their momentum, orthogonalised; AdamW
// updates the other parameters. What is orthogonalised is the clipped gradient's momentum, once per step, in f32.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

// As in DeepSpeed: matrices whose names hold neither "embed" nor "lm_head", in any case. The rows of all experts are no matrix.
inline bool is_hidden_matrix(std::string_view name, const Shape& shape) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return shape.rank == 2 && lower.find("embed") == std::string::npos &&
         lower.find("lm_head") == std::string::npos && lower.find(".experts.") == std::string::npos;
}

// Gathers the directions of the unit from the owners of its slices; between the matrices they are 0.
inline void gather_directions(UnitUpdate& update) {
  const BufferId mine = update.direction(update.updated());
  int64_t at = update.updated().begin;
  const auto zero_until = [&](int64_t end) {
    if (at < end) update.emit(OpKind::zero, {}, {}, {update.direction({at, end})});
  };
  for (const UpdateRun& run : update.runs()) {
    if (!run.matrix) continue;
    zero_until(run.range.begin);
    at = run.range.end;
  }
  zero_until(update.updated().end);
  update.emit_gather(RankSet::slices, mine, update.buffers().direction.id);
}

// Each rank that updates a part of a matrix transforms the whole direction: no result has to be sent.
inline void update_matrix(UnitUpdate& update, const UpdateRun& run) {
  const Parameter& p = *run.matrix;
  const BufferId moved = update.emit_whole(p, run.range, [&update](BufferId whole) {
    update.emit(OpKind::orthogonalize, OrthogonalizeAttrs{.gram = update.config().gram}, {whole},
                {whole});
  });
  const double ratio = static_cast<double>(p.shape[0]) / static_cast<double>(p.shape[1]);
  update.emit(OpKind::muon,
              MuonAttrs{.weight_decay = run.settings.weight_decay,
                        .scale = static_cast<float>(std::sqrt(std::max(1.0, ratio))),
                        .lr_scale = run.settings.lr_scale},
              {moved}, {update.master(run.range), update.copy(run.range)});
}

inline constexpr SlotRule kMuonState[] = {{.name = "exp_avg"},
                                          {.name = "exp_avg_sq", .forms = {UpdateForm::elements}}};

inline constexpr OptimizerRule muon{
    .kind = OptimizerKind::muon,
    .name = [](const OptimizerConfig&) -> std::string_view { return "Muon"; },
    .slots = kMuonState,
    .other_form = UpdateForm::matrix,
    .takes = [](const OptimizerConfig&,
                const TakenParameter& p) { return is_hidden_matrix(p.name, p.shape); },
    .begin =
        [](UnitUpdate& update) {
          const OptimizerConfig& o = update.config();
          if (update.has_matrices())
            update.buffers().direction = {
                .id = update.add_buffer("direction", update.unit().elements, Lifetime::step)};
          for (const UpdateRun& run : update.runs())
            if (run.matrix)
              update.emit(OpKind::muon_momentum, MuonMomentumAttrs{.momentum = o.momentum},
                          {update.gradients(run.range)},
                          {update.slot(0, run.range), update.direction(run.range)});
            else
              update.emit_update(OpKind::adam,
                                 AdamAttrs{.eps = static_cast<float>(o.eps),
                                           .weight_decay = run.settings.weight_decay,
                                           .decoupled_decay = o.decoupled_decay,
                                           .beside_muon = true,
                                           .lr_scale = run.settings.lr_scale},
                                 run.range, 2);
          if (update.has_matrices() && update.sharded()) gather_directions(update);
        },
    .finish =
        [](UnitUpdate& update) {
          for (const UpdateRun& run : update.runs())
            if (run.matrix) update_matrix(update, run);
        },
    .other_lr = &OptimizerConfig::adam_lr,
    .kept_share = &OptimizerConfig::momentum,
    .corrects_bias = true,
    .params = [](const OptimizerConfig& o) -> OptimizerParams {
      return {{"momentum", fmt::format("{}", o.momentum)},
              {"ns_method", o.gram ? "gram" : "standard"},
              {"adam_lr", fmt::format("{}", o.adam_lr)},
              {"adam_w_mode", fmt::format("{}", o.decoupled_decay), "true"},
              {"betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
              {"eps", fmt::format("{}", o.eps)}};
    },
};

}  // namespace dstrain::optimizers
