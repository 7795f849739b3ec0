// What Llama and its relatives have in common: the token embedding; blocks of RMS norm, rotary attention, whose keys and
// values may have fewer heads, RMS norm and a gated MLP; a final norm and a head. Keys and tensors have the names of
// Hugging Face's config.json and files. A family says in data what is different in its own.
#pragma once

#include <string_view>

#include "runtime/config/model/family.h"

namespace dstrain::models {

// transformers' defaults of a family's keys, as JSON text; empty: unset, and then as the note of the key says.
struct DecoderDefaults {
  std::string_view vocab_size = "32000", intermediate_size = "11008", num_key_value_heads = "",
                   max_position_embeddings = "2048", head_dim = "", sliding_window = "4096";
};

// What a family of decoders has that others have not.
struct DecoderFeatures {
  bool attention_bias_key = false;  // attention_bias: biases of all four products of attention
  bool qkv_bias = false;            // queries, keys and values always have biases
  bool mlp_bias_key = false;
  bool head_norms = false;     // RMS norms of the queries and keys of each head
  bool window = false;         // sliding_window, of all layers
  bool window_layers = false;  // ... of some: use_sliding_window, max_window_layers and layer_types
};

// What names a family: its model_type, its name for people, and its class in transformers.
struct DecoderNames {
  std::string_view type, title, architecture;
};

// Returns the family with these names, defaults and features. `build` emits its forward pass, by build_decoder() with the
// same features.
ModelFamily decoder_family(const DecoderNames& names, const DecoderDefaults& defaults,
                           const DecoderFeatures& features,
                           void (*build)(Builder&, const ModelConfig&));
// Emits the forward pass of a model with these features.
void build_decoder(Builder& builder, const ModelConfig& config, const DecoderFeatures& features);

}  // namespace dstrain::models
