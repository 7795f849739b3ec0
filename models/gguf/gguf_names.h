// Names in GGUF files that do not depend on the model, although they are called after one, or after a key of one.
#pragma once

#include <cstddef>
#include <string_view>

namespace dstrain::models {

// tokenizer.ggml.model: BPE of bytes, and BPE with SentencePiece's marks.
inline constexpr std::string_view kByteLevelTokenizer = "gpt2", kMarkedTokenizer = "llama";
// tokenizer.ggml.pre: the published pattern that has single digits.
inline constexpr std::string_view kSingleDigits = "qwen2";

// Returns whether llama.cpp takes the values of a tensor in f32 alone.
inline bool is_in_f32(std::string_view name, size_t dimensions) {
  return dimensions <= 1 || !name.ends_with(".weight") || name.ends_with("_norm.weight") ||
         name == "position_embd.weight";
}

}  // namespace dstrain::models
