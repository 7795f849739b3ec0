#include "models/gguf/gguf_rotary.h"

#include <fmt/core.h>

#include <cmath>

namespace dstrain::models {
namespace {

KeyProblem problem(std::string_view key, std::string message) {
  return {{key}, std::move(message)};
}

// llama.cpp's own scale of cos and sin, which follows from the factor.
double usual_yarn_scale(const RotaryAttrs& rotary) {
  return rotary.factor > 1 ? 0.1 * std::log(rotary.factor) + 1 : 1;
}

std::optional<KeyProblem> add_yarn(GgufModel& model, const RotaryAttrs& rotary) {
  if (std::abs(rotary_scale(rotary) - usual_yarn_scale(rotary)) > 1e-6)
    return problem("dstrain.model.rope_parameters.attention_factor",
                   "llama.cpp multiplies cos and sin of yarn by 0.1 ln(factor) + 1, and this model "
                   "by something else");
  if (!rotary.truncate)
    return problem(
        "dstrain.model.rope_parameters.truncate",
        "llama.cpp has whole numbers at the ends of yarn's ramp: only true is available");
  model.add("rope.scaling.type", std::string("yarn"));
  model.add_real("rope.scaling.factor", rotary.factor);
  model.add_size("rope.scaling.original_context_length",
                 static_cast<int64_t>(rotary.original_positions));
  model.add_real("rope.scaling.yarn_beta_fast", rotary.beta_fast);
  model.add_real("rope.scaling.yarn_beta_slow", rotary.beta_slow);
  return std::nullopt;
}

// llama.cpp divides the frequencies of plain positions by these.
void add_factors(GgufModel& model, const RotaryAttrs& rotary) {
  RotaryAttrs plain = rotary;
  plain.kind = RotaryKind::plain;
  const std::vector<double> from = rotary_frequencies(plain), to = rotary_frequencies(rotary);
  for (size_t i = 0; i < from.size(); ++i)
    model.rope_freqs.push_back(static_cast<float>(from[i] / to[i]));
}

}  // namespace

std::optional<KeyProblem> add_gguf_rotary(GgufModel& model, const RotaryAttrs& rotary,
                                          bool has_factors) {
  model.add_size("rope.dimension_count", rotary.rotated_columns());
  model.add_real("rope.freq_base", rotary.theta);
  constexpr std::string_view key = "dstrain.model.rope_parameters.rope_type";
  switch (rotary.kind) {
    case RotaryKind::plain:
      break;
    case RotaryKind::linear:
      model.add("rope.scaling.type", std::string("linear"));
      model.add_real("rope.scaling.factor", rotary.factor);
      break;
    case RotaryKind::yarn:
      return add_yarn(model, rotary);
    case RotaryKind::llama3:
      if (!has_factors)
        return problem(key, fmt::format("llama.cpp's architecture {} has no positions of the kind "
                                        "\"llama3\"",
                                        model.architecture));
      add_factors(model, rotary);
      break;
    case RotaryKind::dynamic:
      return problem(key, "llama.cpp has no positions of the kind \"dynamic\"");
  }
  return std::nullopt;
}

}  // namespace dstrain::models
