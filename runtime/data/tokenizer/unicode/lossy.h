// Text of bytes that need not be UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dstrain::unicode {

// What is not valid in a text.
struct Invalid {
  int64_t places = 0;
  int64_t first = -1;  // offset of the first
};

// Returns `text` if it is valid UTF-8, else `scratch`, which gets it with U+FFFD in the place of each longest beginning
// of a character that is cut short and of each other byte that belongs to none, as Python's errors="replace" and Rust's
// from_utf8_lossy put it.
std::string_view lossy_utf8(std::string_view text, std::string& scratch, Invalid& invalid);

// Returns how many bytes at the end of `text` begin a character whose other bytes may follow.
size_t begun_bytes(std::string_view text);

}  // namespace dstrain::unicode
