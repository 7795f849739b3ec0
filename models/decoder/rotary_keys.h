// The keys of rotary position embeddings, the other names and places that config.json has of them, and what they say.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/ir/rotary.h"

namespace dstrain::models {

// The position embeddings of a family.
struct RotaryPart {
  std::string_view theta = "10000.0";  // the default of rope_theta, as JSON text
  std::string_view outer_theta = "dstrain.model.rope_theta";  // its old place
  // The default of partial_rotary_factor, as JSON text: the part of each head's columns that is rotated. Empty: all, and
  // there is no key. outer_share: its old place.
  std::string_view share = {}, outer_share = {};
  // Layers with a window have plain positions with a theta of their own, rope_local_base_freq, whose default this is; in
  // config.json rope_parameters may have a section for either kind of layers. Empty: all layers have the same.
  std::string_view local_theta = {};
};

// Return the keys, all but one in section rope_parameters, and the rows of their other names and places.
std::vector<ModelKey> rotary_keys(const RotaryPart& part);
std::vector<KeySpec> rotary_fields(const RotaryPart& part);
// Brings the other names and places of a model's section to those of the keys. Where a model has both rope_parameters and
// rope_scaling, the first stays as it is.
void normalise_rotary(Node& model, const RotaryPart& part);
// Adds the factors that have their default, which transformers want to read, to a section that is to be written, and gives
// either kind of layers its section.
void restore_rotary(Node& model, const RotaryPart& part);
// Returns what is wrong with values that are legal one by one, of a model whose heads have so many columns.
std::optional<KeyProblem> rotary_key_problem(const ModelConfig& config, int64_t head_size);
// Returns the position embedding of such heads; its length is not set.
RotaryAttrs rotary_of(const ModelConfig& config, int64_t head_size);
// Returns that of layers with a window.
RotaryAttrs local_rotary_of(const ModelConfig& config, int64_t head_size);

}  // namespace dstrain::models
