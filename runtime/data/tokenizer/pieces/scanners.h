// Scanners of the published patterns, which divide a text into the pieces that are merged by themselves. Each does what
// the tokenizers library does with the pattern, exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dstrain {

enum class Pattern { gpt2, llama3, qwen2, qwen3_5 };

// Returns the pattern that this regular expression is, character by character; nothing for any other one.
std::optional<Pattern> published_pattern(std::string_view expression);

// Returns the regular expression of a published pattern.
std::string_view expression_of(Pattern pattern);

// Calls emit(begin, end), offsets in bytes, for each piece of `text` in order; together they are the whole of it.
// `text` must be valid UTF-8.
template <class Emit>
void scan_pieces(Pattern pattern, std::string_view text, const Emit& emit);

// Returns the end of the piece that begins at `at` (below `bytes`).
int64_t gpt2_piece(const unsigned char* text, int64_t at, int64_t bytes);
int64_t llama3_piece(const unsigned char* text, int64_t at, int64_t bytes);
int64_t qwen2_piece(const unsigned char* text, int64_t at, int64_t bytes);
int64_t qwen3_5_piece(const unsigned char* text, int64_t at, int64_t bytes);

template <class Emit>
void scan_pieces(Pattern pattern, std::string_view text, const Emit& emit) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto bytes = static_cast<int64_t>(text.size());
  const auto scan = [&](auto piece_end) {
    for (int64_t at = 0; at < bytes;) {
      const int64_t end = piece_end(p, at, bytes);
      emit(at, end);
      at = end;
    }
  };
  switch (pattern) {
    case Pattern::gpt2:
      return scan(gpt2_piece);
    case Pattern::llama3:
      return scan(llama3_piece);
    case Pattern::qwen2:
      return scan(qwen2_piece);
    case Pattern::qwen3_5:
      return scan(qwen3_5_piece);
  }
}

}  // namespace dstrain
