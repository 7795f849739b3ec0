// FineTuning: what a run changes about the model that its family builds: groups of parameters with settings of their own,
// which may be frozen, and low-rank adapters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/blocks/weight_blocks.h"

namespace dstrain {

// Parameters by patterns of their names, and what they have otherwise than others (dstrain.parameter_groups).
struct ParameterGroup {
  std::vector<std::string> match{};      // patterns, as fnmatch(3) reads them
  double lr_scale = 1;                   // of the learning rate
  std::optional<double> weight_decay{};  // absent: the optimizer's
  bool trainable = true;                 // false: they keep their initial values
  bool operator==(const ParameterGroup&) const = default;
};

// Low-rank adapters (LoRA, Hu et al., 2021; dstrain.lora): beside a product x W^T of the frozen model is
// scale * (dropout(x) A^T) B^T, with A (r, inputs) and B (outputs, r), which are trained.
struct LoraConfig {
  int64_t r = 8;
  double alpha = 8;
  double dropout = 0;       // probability
  bool rslora = false;      // scale: alpha / sqrt(r) (Kalajdzievski, 2023), else alpha / r
  bool all_linear = false;  // the products of all numbered layers
  std::vector<std::string>
      targets{};  // else the last parts of modules' names: "q_proj", "attn.c_attn"
  // The last parts of the names of modules that are trained as a whole beside the adapters (PEFT's modules_to_save).
  std::vector<std::string> saved{};
  // What the weights of the blocks' products are kept in, which are unpacked in front of each product (QLoRA, Dettmers et
  // al., 2023); none: the run's dtype.
  BlockFormat base = BlockFormat::none;
  bool operator==(const LoraConfig&) const = default;

  double scale() const;
  // Returns whether the product of this module gets an adapter. `numbered`: its layer has a number.
  bool takes(std::string_view module, bool numbered) const;
  // Returns whether the parameter belongs to a module that is trained as a whole.
  bool saves(std::string_view parameter) const;
};

// Returns whether `last` is the name of the module, or the end of it behind a dot.
bool is_last_part(std::string_view last, std::string_view module);

// The ends of adapters' names behind the names of their modules, as PEFT has them.
inline constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";
inline bool is_adapter(std::string_view parameter) {
  return parameter.ends_with(kLoraA) || parameter.ends_with(kLoraB);
}

struct FineTuning {
  std::vector<ParameterGroup> groups{};  // the first one with a matching pattern has a parameter
  std::optional<LoraConfig> lora{};
  bool operator==(const FineTuning&) const = default;

  // Returns the group of a parameter, or null.
  const ParameterGroup* group_of(std::string_view parameter) const;
  // Returns whether the files of adapters have the parameter: it is a matrix of one, or of a module that is trained as a whole.
  bool with_adapters(std::string_view parameter) const;
  // Returns whether a parameter keeps its initial value: its group says so, or there are adapters and it is not trained with
  // them.
  bool freezes(std::string_view parameter) const;
  // Returns whether any parameter may be frozen.
  bool may_freeze() const;
};

// Returns whether a pattern, as fnmatch(3) reads it, matches the name.
bool matches(const std::string& pattern, std::string_view name);

}  // namespace dstrain
