// What Llama and its relatives have in common: the token embedding; blocks of RMS norm, rotary attention, whose keys and
// values may have fewer heads, RMS norm and a gated MLP; a final norm and a head. Keys and tensors have the names of
// Hugging Face's config.json and files. A family says in data what is different in its own.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// Returns a family's keys, the rows of its config.json that are no keys, and its directories.
std::vector<ModelKey> decoder_keys(const DecoderDefaults& defaults,
                                   const DecoderFeatures& features);
HuggingFace decoder_directories(std::string_view architecture, const DecoderFeatures& features);
// Returns what is wrong with values that are legal one by one.
std::optional<KeyProblem> decoder_problem(const ModelConfig& config);
// Returns whether samples may be longer than max_position_embeddings.
bool decoder_exceeds_context(const ModelConfig& config);
// Emits the forward pass of a model with these features.
void build_decoder(Builder& builder, const ModelConfig& config, const DecoderFeatures& features);

}  // namespace dstrain::models
