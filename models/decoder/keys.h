// The keys of decoders, and what they say in the form in which the forward pass wants it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "models/decoder/decoder.h"
#include "runtime/ir/op.h"

namespace dstrain::models {

// Returns a family's keys, the rows of its config.json that are no keys, and its directories.
std::vector<ModelKey> decoder_keys(const DecoderDefaults& defaults, const DecoderParts& parts);
HuggingFace decoder_directories(std::string_view architecture, const DecoderDefaults& defaults,
                                const DecoderParts& parts);
// Returns what is wrong with values that are legal one by one.
std::optional<KeyProblem> decoder_problem(const ModelConfig& config);
// Returns whether samples may be longer than max_position_embeddings.
bool decoder_exceeds_context(const ModelConfig& config);
// Return the heads of keys and values, and the size of a head, with their defaults.
int64_t kv_heads_of(const ModelConfig& config);
int64_t head_size_of(const ModelConfig& config);
// Returns whether a layer is one of those with a window, and the keys that a query sees in it, itself included; 0: all
// before it.
bool has_window(const ModelConfig& config, const WindowPart& part, int64_t layer);
int64_t window_of(const ModelConfig& config, const WindowPart& part, int64_t layer);
// Returns the activation of a name of transformers', and that of the gate.
Activation activation_of(std::string_view name);
Activation gate_of(const ModelConfig& config, const MlpPart& part);

}  // namespace dstrain::models
