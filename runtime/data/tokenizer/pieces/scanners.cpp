#include "runtime/data/tokenizer/pieces/scanners.h"

#include <array>

#include "runtime/data/tokenizer/unicode/classes.h"
#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

using unicode::kLetter;
using unicode::kMark;
using unicode::kNumber;
using unicode::kSpace;

struct PublishedPattern {
  Pattern pattern;
  std::string_view expression;
};

constexpr std::array<PublishedPattern, 4> kPublished = {
    {{Pattern::gpt2,
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
     {Pattern::llama3,
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
     {Pattern::qwen2,
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
     {Pattern::qwen3_5,
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}};

// A text and the classes of its characters. Offsets are in bytes.
class Reader {
 public:
  Reader(const unsigned char* text, int64_t bytes)
      : text_(text), bytes_(bytes), classes_(unicode::classes()) {}

  int64_t bytes() const { return bytes_; }
  bool has(int64_t at) const { return at < bytes_; }
  unsigned byte(int64_t at) const { return text_[at]; }
  bool is(int64_t at, unsigned byte) const { return at < bytes_ && text_[at] == byte; }
  bool is_newline(int64_t at) const { return is(at, '\n') || is(at, '\r'); }

  // Sets `next` to the offset behind the character at `at`, and returns its classes.
  unsigned read(int64_t at, int64_t& next) const {
    const unsigned lead = text_[at];
    if (lead < 0x80) {
      next = at + 1;
      return classes_[lead];
    }
    const utf8::Character c = utf8::decode_valid(text_ + at);
    next = at + c.bytes;
    return classes_[c.code];
  }

  // Returns the offset behind the characters from `at` on, at most `most` of them, that have one of the classes `in`
  // (where `in` is not 0) and none of `out`.
  int64_t run(int64_t at, unsigned in, unsigned out, int64_t most = INT64_MAX) const {
    for (int64_t next = at; has(at) && most > 0; --most, at = next) {
      const unsigned c = read(at, next);
      if ((in != 0 && (c & in) == 0) || (c & out) != 0) break;
    }
    return at;
  }

 private:
  const unsigned char* text_;
  int64_t bytes_;
  const uint8_t* classes_;
};

// Returns the end of the white space at `at`, without its last character where something follows that it belongs to.
int64_t space_piece(const Reader& text, int64_t at) {
  int64_t end = at, last = at;
  for (int64_t next = at; text.has(end); end = next) {
    if ((text.read(end, next) & kSpace) == 0) break;
    last = end;
  }
  return text.has(end) && last > at ? last : end;
}

// Returns the length of the contraction at `at`, which is a quote; 0: there is none.
int64_t contraction(const Reader& text, int64_t at, bool any_case) {
  if (!text.has(at + 1)) return 0;
  const unsigned fold = any_case ? 0x20 : 0;
  const unsigned first = text.byte(at + 1) | fold;
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  // U+017F, the long s, is an s in any case.
  if (any_case && text.byte(at + 1) == 0xc5 && text.is(at + 2, 0xbf)) return 3;
  if (!text.has(at + 2)) return 0;
  const unsigned second = text.byte(at + 2) | fold;
  const bool two =
      ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

// The patterns that begin as Llama-3's. `letters`: the classes of words; `digits`: the most digits of a piece.
int64_t llama_piece(const Reader& text, int64_t at, unsigned letters, int64_t digits) {
  if (text.byte(at) == '\'')
    if (const int64_t length = contraction(text, at, true)) return at + length;
  int64_t next = at;
  const unsigned c = text.read(at, next);
  if ((c & letters) != 0) return text.run(next, letters, 0);
  if ((c & kNumber) != 0) return text.run(at, kNumber, 0, digits);
  if (!text.is_newline(at)) {
    const int64_t word = text.run(next, letters, 0);
    if (word > next) return word;
  }
  const int64_t begin = text.byte(at) == ' ' ? next : at;
  int64_t end = text.run(begin, 0, kSpace | kNumber | letters);
  if (end > begin) {
    while (text.is_newline(end)) ++end;
    return end;
  }
  int64_t behind_newline = -1;
  for (int64_t i = at, after = at; text.has(i) && (text.read(i, after) & kSpace) != 0; i = after)
    if (text.is_newline(i)) behind_newline = after;
  return behind_newline > 0 ? behind_newline : space_piece(text, at);
}

}  // namespace

std::optional<Pattern> published_pattern(std::string_view expression) {
  for (const PublishedPattern& known : kPublished)
    if (known.expression == expression) return known.pattern;
  return std::nullopt;
}

std::string_view expression_of(Pattern pattern) {
  return kPublished.at(static_cast<size_t>(pattern)).expression;
}

int64_t gpt2_piece(const unsigned char* p, int64_t at, int64_t bytes) {
  const Reader text(p, bytes);
  if (p[at] == '\'')
    if (const int64_t length = contraction(text, at, false)) return at + length;
  const int64_t begin = p[at] == ' ' ? at + 1 : at;
  if (!text.has(begin)) return begin;
  int64_t next = begin;
  const unsigned c = text.read(begin, next);
  if ((c & kLetter) != 0) return text.run(next, kLetter, 0);
  if ((c & kNumber) != 0) return text.run(next, kNumber, 0);
  if ((c & kSpace) == 0) return text.run(next, 0, kSpace | kLetter | kNumber);
  return space_piece(text, at);
}

int64_t llama3_piece(const unsigned char* p, int64_t at, int64_t bytes) {
  return llama_piece(Reader(p, bytes), at, kLetter, 3);
}

int64_t qwen2_piece(const unsigned char* p, int64_t at, int64_t bytes) {
  return llama_piece(Reader(p, bytes), at, kLetter, 1);
}

int64_t qwen3_5_piece(const unsigned char* p, int64_t at, int64_t bytes) {
  return llama_piece(Reader(p, bytes), at, kLetter | kMark, 1);
}

}  // namespace dstrain
