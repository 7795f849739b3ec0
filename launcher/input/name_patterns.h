// Patterns of the configuration for names of the model: those of weights, and of the layers that a pipeline divides.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "runtime/config/load.h"
#include "runtime/storage/state.h"

namespace dstrain {

// Returns names and shapes of the model's weights, those of adapters included, and what they are in weight files.
StateRegister weights_of(const ModelConfig& model);

// Returns the names of the weights that a run on the model keeps in packed blocks (LoraConfig::base).
std::set<std::string, std::less<>> packed_weights_of(const ModelConfig& model);

// A pattern that matches no name: its key in the configuration, and what is wrong.
struct WrongPattern {
  std::string key, message;
};

// Returns the first pattern of dstrain.lora.targets that matches no product, of dstrain.lora.modules_to_save that matches no
// module, of dstrain.weight_decay_exclude or dstrain.parameter_groups that matches no weight, or of pipeline.partition that
// matches no layer; or that the groups freeze everything. The vocabulary's size may be unknown.
std::optional<WrongPattern> find_wrong_pattern(const Job& job);

// Throws UserError, which names the place of the pattern, if there is a wrong one.
void check_name_patterns(const LoadedConfig& loaded);

}  // namespace dstrain
