// The keys of rotary position embeddings, the other names and places that config.json has of them, and what they say.
#pragma once

#include <optional>
#include <vector>

#include "runtime/config/model/family.h"
#include "runtime/ir/rotary.h"

namespace dstrain::models {

// Return the keys, all in section rope_parameters, and the rows of their other names and places.
std::vector<ModelKey> rotary_keys();
std::vector<KeySpec> rotary_fields();
// Brings the other names and places of a model's section to those of the keys. Where a model has both rope_parameters and
// rope_scaling, the first stays as it is.
void normalise_rotary(Node& model);
// Adds the factors that have their default, which transformers want to read, to a section that is to be written.
void restore_rotary(Node& model);
// Returns what is wrong with values that are legal one by one.
std::optional<KeyProblem> rotary_key_problem(const ModelConfig& config);
// Returns the position embedding; its length is not set.
RotaryAttrs rotary_of(const ModelConfig& config);

}  // namespace dstrain::models
