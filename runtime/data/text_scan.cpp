#include "runtime/data/text_scan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <limits>
#include <mutex>

#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

constexpr int64_t kChunk = 256 * kTextBlock;  // bytes of a thread's unit of work
constexpr int64_t kGroup = 64;                // bytes that are tested for ASCII at once
constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();

struct Text {
  const unsigned char* data;
  int64_t bytes;
};

// The set of characters of a text: one byte per ASCII character, which is fast to set, and one bit per other
// code point.
class Seen {
 public:
  Seen() : bits_(utf8::kCodePoints / 64) {}

  void add_ascii(const unsigned char* p, int64_t count) {
    for (int64_t i = 0; i < count; ++i) ascii_[p[i]] = 1;
  }
  void add(uint32_t code) { bits_[code / 64] |= uint64_t{1} << (code % 64); }

  void merge(const Seen& other) {
    for (size_t i = 0; i < ascii_.size(); ++i) ascii_[i] |= other.ascii_[i];
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
  }

  std::vector<uint32_t> sorted() {
    for (uint32_t c = 0; c < ascii_.size(); ++c)
      if (ascii_[c]) add(c);
    std::vector<uint32_t> codes;
    for (size_t word = 0; word < bits_.size(); ++word)
      for (uint64_t left = bits_[word]; left != 0; left &= left - 1)
        codes.push_back(static_cast<uint32_t>(word * 64) +
                        static_cast<uint32_t>(std::countr_zero(left)));
    return codes;
  }

 private:
  std::array<uint8_t, 128> ascii_{};
  std::vector<uint64_t> bits_;
};

bool is_ascii(const unsigned char* p, int64_t count) {
  unsigned char any = 0;
  for (int64_t i = 0; i < count; ++i) any |= p[i];
  return any < 0x80;
}

// Returns the offset of the first character that starts in chunk `c`. In invalid text it may be another byte;
// then the chunk before does not end at this offset, which scan_chunk detects.
int64_t chunk_begin(const Text& text, int64_t c) {
  int64_t at = std::min(c * kChunk, text.bytes);
  if (c == 0) return at;
  for (int i = 0; i < 3 && at < text.bytes && !utf8::starts_character(text.data[at]); ++i) ++at;
  return at;
}

// Returns the number of characters that start in [at, end) and moves `at` behind the last of them. At an invalid
// byte, `at` stops there and the result is -1.
int64_t scan_block(const Text& text, int64_t& at, int64_t end, Seen& seen) {
  int64_t characters = 0;
  while (at < end) {
    const int64_t group = std::min(kGroup, end - at);
    if (is_ascii(text.data + at, group)) {
      seen.add_ascii(text.data + at, group);
      at += group;
      characters += group;
      continue;
    }
    for (const int64_t stop = at + group; at < stop; ++characters) {
      const utf8::Character c = utf8::decode(text.data + at, text.bytes - at);
      if (c.bytes == 0) return -1;
      seen.add(c.code);
      at += c.bytes;
    }
  }
  return characters;
}

// Scans one chunk and sets the number of characters of its blocks. Returns the offset of the first invalid byte,
// or kNowhere.
int64_t scan_chunk(const Text& text, int64_t chunk, Seen& seen, std::vector<int64_t>& in_block) {
  int64_t at = chunk_begin(text, chunk);
  const int64_t end = std::min((chunk + 1) * kChunk, text.bytes);
  for (int64_t block = chunk * (kChunk / kTextBlock); block * kTextBlock < end; ++block) {
    const int64_t characters = scan_block(text, at, std::min((block + 1) * kTextBlock, end), seen);
    if (characters < 0) return at;
    in_block[static_cast<size_t>(block)] = characters;
  }
  return at == chunk_begin(text, chunk + 1) ? kNowhere : at;
}

}  // namespace

TextScan scan_text(const unsigned char* data, int64_t bytes, const std::string& path) {
  const Text text{data, bytes};
  const int64_t chunks = (bytes + kChunk - 1) / kChunk;
  TextScan scan;
  scan.starts_before.resize(static_cast<size_t>((bytes + kTextBlock - 1) / kTextBlock + 1));
  Seen seen;
  int64_t invalid = kNowhere;
  std::mutex mutex;
  std::atomic<int64_t> next{0};
  run_parts(std::clamp<int64_t>(chunks, 1, thread_count()), [&](int64_t) {
    Seen mine;
    int64_t first_invalid = kNowhere;
    for (int64_t c = next++; c < chunks; c = next++)
      first_invalid = std::min(first_invalid, scan_chunk(text, c, mine, scan.starts_before));
    const std::lock_guard lock(mutex);
    invalid = std::min(invalid, first_invalid);
    seen.merge(mine);
  });
  if (invalid != kNowhere)
    fail_user(
        "the data file {} is not UTF-8 text: byte 0x{:02x} at offset {} belongs to no character; "
        "convert the file, or read it as bytes with dstrain.data.format \"byte\"",
        path, data[invalid], invalid);
  for (int64_t& entry : scan.starts_before) {
    const int64_t here = entry;
    entry = scan.characters;
    scan.characters += here;
  }
  if (scan.characters == bytes) scan.starts_before = {};
  scan.distinct = seen.sorted();
  return scan;
}

int64_t byte_of_character(const TextScan& scan, const unsigned char* text, int64_t index) {
  const auto it = std::upper_bound(scan.starts_before.begin(), scan.starts_before.end(), index) - 1;
  int64_t at = (it - scan.starts_before.begin()) * kTextBlock - 1;
  // The character is the (index - *it + 1)-th that starts after `at`.
  for (int64_t left = index - *it + 1; left > 0;) left -= utf8::starts_character(text[++at]);
  return at;
}

}  // namespace dstrain
