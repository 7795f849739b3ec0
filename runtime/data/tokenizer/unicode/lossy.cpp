#include "runtime/data/tokenizer/unicode/lossy.h"

#include <algorithm>
#include <cstring>

#include "runtime/data/utf8.h"

namespace dstrain::unicode {
namespace {

// Returns how many bytes a character has that begins with `lead`; 0 if none does.
int64_t bytes_from_lead(unsigned lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
}

// Returns the length of what begins at `p`, is no character, and is replaced together.
int64_t invalid_bytes(const unsigned char* p, int64_t available) {
  const unsigned lead = p[0];
  const int64_t whole = bytes_from_lead(lead);
  if (whole < 2) return 1;
  // The second byte's range leaves out overlong forms, surrogates and what is above U+10FFFF.
  const unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (available < 2 || p[1] < least || p[1] > most) return 1;
  int64_t bytes = 2;
  while (bytes < whole && bytes < available && (p[bytes] & 0xc0) == 0x80) ++bytes;
  return bytes;
}

// Returns the offset of the first byte from `at` on that belongs to no character, or `bytes`.
int64_t valid_until(const unsigned char* p, int64_t at, int64_t bytes) {
  while (at < bytes) {
    uint64_t word = 0;
    if (bytes - at >= 8) {
      std::memcpy(&word, p + at, 8);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const utf8::Character c = utf8::decode(p + at, bytes - at);
    if (c.bytes == 0) return at;
    at += c.bytes;
  }
  return bytes;
}

}  // namespace

std::string_view lossy_utf8(std::string_view text, std::string& scratch, Invalid& invalid) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto bytes = static_cast<int64_t>(text.size());
  int64_t valid = valid_until(p, 0, bytes);
  if (valid == bytes) return text;
  invalid = {0, valid};
  scratch.assign(text, 0, static_cast<size_t>(valid));
  while (valid < bytes) {
    scratch += "\xef\xbf\xbd";
    ++invalid.places;
    const int64_t begin = valid + invalid_bytes(p + valid, bytes - valid);
    valid = valid_until(p, begin, bytes);
    scratch.append(text, static_cast<size_t>(begin), static_cast<size_t>(valid - begin));
  }
  return scratch;
}

size_t begun_bytes(std::string_view text) {
  const auto* end = reinterpret_cast<const unsigned char*>(text.data()) + text.size();
  for (int64_t bytes = 1; bytes <= std::min<int64_t>(3, std::ssize(text)); ++bytes) {
    const unsigned char* const p = end - bytes;
    if (!utf8::starts_character(*p)) continue;
    const bool begun = bytes_from_lead(*p) > bytes && invalid_bytes(p, bytes) == bytes;
    return begun ? static_cast<size_t>(bytes) : 0;
  }
  return 0;
}

}  // namespace dstrain::unicode
