// TextScan: what one pass over a UTF-8 text finds out: that it is valid, which characters it has, and
// where the n-th one lies. Stands on utf8.h and OpenMP. Invariant: the result does not depend on the
// number of threads; memory is 8 bytes per 4096 of the text, none where it is pure ASCII.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dstrain {

struct TextScan {
  int64_t characters = 0;
  std::vector<uint32_t> distinct;  // code points, ascending
  // Entry b: characters that start before byte b * kTextBlock; one more entry with their number.
  // Empty where every character is one byte.
  std::vector<int64_t> starts_before;
};

inline constexpr int64_t kTextBlock = 4096;

// Throws UserError with the byte offset of the first byte that is not valid UTF-8; `path` names it.
TextScan scan_text(const unsigned char* text, int64_t bytes, const std::string& path);

// Byte offset of character `index` (< scan.characters) of a text that is not pure ASCII.
int64_t byte_of_character(const TextScan& scan, const unsigned char* text, int64_t index);

}  // namespace dstrain
