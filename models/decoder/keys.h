// The keys of decoders, and what they say in the form in which the forward pass wants it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/decoder/decoder.h"
#include "runtime/ir/op.h"

namespace dstrain::models {

// Returns a family's keys, the rows of its config.json that are no keys, and its directories.
std::vector<ModelKey> decoder_keys(const DecoderDefaults& defaults, const DecoderParts& parts);
HuggingFace decoder_directories(std::string_view architecture, const DecoderDefaults& defaults,
                                const DecoderParts& parts);
// Returns patterns of the tensors in files that no decoder reads (HuggingFace::ignored).
std::vector<std::string> decoder_ignored(const ModelConfig& config);
// Returns what is wrong with values that are legal one by one.
std::optional<KeyProblem> decoder_problem(const ModelConfig& config);
// Returns whether samples may be longer than max_position_embeddings.
bool decoder_exceeds_context(const ModelConfig& config);
// Return the heads of keys and values, and the size of a head, with their defaults.
int64_t kv_heads_of(const ModelConfig& config);
int64_t head_size_of(const ModelConfig& config);
// Returns the activation of a name of transformers', and that of the gate.
Activation activation_of(std::string_view name);
Activation gate_of(const ModelConfig& config, const MlpPart& part);

}  // namespace dstrain::models
