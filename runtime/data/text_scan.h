// TextScan: the result of one parallel pass over a UTF-8 text: its characters, and an index of their offsets.
// The result does not depend on the number of threads. The index takes 8 bytes per 4096 of the text, and none
// for pure ASCII.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dstrain {

struct TextScan {
  int64_t characters = 0;
  std::vector<uint32_t> distinct;  // code points, ascending
  // Entry b: number of characters that start before byte b * kTextBlock; the last entry is that of all. Empty if
  // every character is one byte.
  std::vector<int64_t> starts_before;
};

inline constexpr int64_t kTextBlock = 4096;

// Throws UserError with the offset of the first byte that is not valid UTF-8; `path` names the file.
TextScan scan_text(const unsigned char* text, int64_t bytes, const std::string& path);

// Returns the byte offset of character `index` (< scan.characters) of a text that is not pure ASCII.
int64_t byte_of_character(const TextScan& scan, const unsigned char* text, int64_t index);

}  // namespace dstrain
