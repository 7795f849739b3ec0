// Decoding of UTF-8, one character at a time. Exactly the Unicode scalar values are valid (no overlong forms, no
// surrogates).
#pragma once

#include <cstdint>

namespace dstrain::utf8 {

inline constexpr uint32_t kCodePoints = 0x110000;

// A decoded character.
struct Character {
  uint32_t code = 0;
  int bytes = 0;  // 0: not valid
};

// Returns the character at `p`, where `available` > 0 bytes follow.
inline Character decode(const unsigned char* p, int64_t available) {
  const uint32_t lead = p[0];
  if (lead < 0x80) return {lead, 1};
  const int bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || available < bytes) return {};
  uint32_t code = lead & (0x7fu >> bytes);
  for (int i = 1; i < bytes; ++i) {
    if ((p[i] & 0xc0) != 0x80) return {};
    code = code << 6 | (p[i] & 0x3fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[bytes] || code >= kCodePoints || (code >= 0xd800 && code < 0xe000))
    return {};
  return {code, bytes};
}

// The same for text that is known to be valid.
inline Character decode_valid(const unsigned char* p) {
  const uint32_t lead = p[0];
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (p[1] & 0x3fu), 2};
  if (lead < 0xf0) return {(lead & 0x0f) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu), 3};
  return {(lead & 0x07) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu), 4};
}

inline bool starts_character(unsigned char byte) {
  return (byte & 0xc0) != 0x80;
}

}  // namespace dstrain::utf8
