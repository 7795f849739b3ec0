// AdamW and Lion with state in 8 bits (Dettmers et al., 2022), as bitsandbytes has it (runtime/core/blocks/dynamic_code.h).
// Tables of embeddings and tensors of fewer elements than min_8bit_size keep their state in f32, as with Hugging Face's
// Trainer.
#pragma once

#include "runtime/core/blocks/dynamic_code.h"
#include "runtime/optim/optimizers/adam.h"
#include "runtime/optim/optimizers/lion.h"

namespace dstrain::optimizers {

inline constexpr UpdateForms kWide{UpdateForm::elements}, kPacked{UpdateForm::blocks};

inline constexpr SlotRule kAdam8bitState[] = {
    {.name = "exp_avg", .forms = kWide},
    {.name = "exp_avg_sq", .forms = kWide},
    {.name = "exp_avg_codes", .forms = kPacked, .dtype = DType::u8},
    {.name = "exp_avg_absmax", .forms = kPacked, .dtype = DType::f32, .block = kStateBlock},
    {.name = "exp_avg_sq_codes", .forms = kPacked, .dtype = DType::u8},
    {.name = "exp_avg_sq_absmax", .forms = kPacked, .dtype = DType::f32, .block = kStateBlock},
};
inline constexpr SlotRule kLion8bitState[] = {
    {.name = "exp_avg", .forms = kWide},
    {.name = "exp_avg_codes", .forms = kPacked, .dtype = DType::u8},
    {.name = "exp_avg_absmax", .forms = kPacked, .dtype = DType::f32, .block = kStateBlock},
};

inline bool has_8bit_state(const OptimizerConfig& o, const TakenParameter& p) {
  return !p.looked_up && p.shape.elements() >= o.min_8bit_size;
}

// Returns the parameters that a resume compares: those of the optimizer with state in f32, and min_8bit_size.
inline OptimizerParams with_size(OptimizerParams params, const OptimizerConfig& o) {
  params.push_back({"min_8bit_size", fmt::format("{}", o.min_8bit_size)});
  return params;
}

inline constexpr OptimizerRule adam_8bit{
    .kind = OptimizerKind::adam_8bit,
    .name = [](const OptimizerConfig&) -> std::string_view { return "AdamW8bit"; },
    .slots = kAdam8bitState,
    .other_form = UpdateForm::blocks,
    .takes = has_8bit_state,
    .begin =
        [](UnitUpdate& update) {
          for (const UpdateRun& run : update.runs()) {
            const AdamAttrs attrs{.eps = static_cast<float>(update.config().eps),
                                  .weight_decay = run.settings.weight_decay,
                                  .decoupled_decay = true,
                                  .lr_scale = run.settings.lr_scale};
            if (run.form == UpdateForm::blocks)
              update.emit_update(OpKind::adam_8bit, attrs, run.range, 4, 2);
            else
              update.emit_update(OpKind::adam, attrs, run.range, 2);
          }
        },
    .kept_share = &OptimizerConfig::beta2,
    .has_betas = true,
    .corrects_bias = true,
    .params = [](const OptimizerConfig& o) { return with_size(adam.params(o), o); },
};

inline constexpr OptimizerRule lion_8bit{
    .kind = OptimizerKind::lion_8bit,
    .name = [](const OptimizerConfig&) -> std::string_view { return "Lion8bit"; },
    .slots = kLion8bitState,
    .other_form = UpdateForm::blocks,
    .takes = has_8bit_state,
    .begin =
        [](UnitUpdate& update) {
          for (const UpdateRun& run : update.runs()) {
            const LionAttrs attrs{.weight_decay = run.settings.weight_decay,
                                  .lr_scale = run.settings.lr_scale};
            if (run.form == UpdateForm::blocks)
              update.emit_update(OpKind::lion_8bit, attrs, run.range, 2, 1);
            else
              update.emit_update(OpKind::lion, attrs, run.range, 1);
          }
        },
    .kept_share = &OptimizerConfig::beta2,
    .has_betas = true,
    .params = [](const OptimizerConfig& o) { return with_size(lion.params(o), o); },
};

}  // namespace dstrain::optimizers
