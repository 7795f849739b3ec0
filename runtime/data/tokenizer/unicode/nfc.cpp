#include "runtime/data/tokenizer/unicode/nfc.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/data/tokenizer/unicode/classes.h"
#include "runtime/data/tokenizer/unicode/tables.h"
#include "runtime/data/utf8.h"

namespace dstrain::unicode {
namespace {

// Syllables of Hangul, which are composed by arithmetic (Unicode, section 3.12).
constexpr uint32_t kSyllables = 0xac00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11a7;
constexpr uint32_t kVowelCount = 21, kTrailCount = 28, kSyllableCount = 11172, kLeadCount = 19;

struct Decomposition {
  uint32_t code, first, second;  // second 0: a decomposition of one
};
struct Composition {
  uint64_t pair;  // first and second
  uint32_t code;
};
struct CombiningClass {
  uint32_t code, value;
};

constexpr uint64_t pair_of(uint32_t first, uint32_t second) {
  return uint64_t{first} << 32 | second;
}

// The unfolded tables, each in ascending order of what is looked up in it.
struct Tables {
  std::vector<Decomposition> decompositions;
  std::vector<Composition> compositions;
  std::vector<CombiningClass> combining;

  Tables() {
    uint32_t code = 0;
    for (const uint32_t* row = kDecompositionRows;
         row != kDecompositionRows + 3 * kDecompositionRowsCount; row += 3) {
      code += row[0] / 2;
      decompositions.push_back({code, row[1], row[2]});
      if (row[0] % 2 != 0) compositions.push_back({pair_of(row[1], row[2]), code});
    }
    std::ranges::sort(compositions, {}, &Composition::pair);
    code = 0;
    for (int i = 0; i < kCombiningRowsCount; ++i)
      combining.push_back({code += kCombiningRows[2 * i], kCombiningRows[2 * i + 1]});
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

template <class Row, class Key, class Member>
const Row* row_of(const std::vector<Row>& rows, Key key, Member member) {
  const auto at = std::ranges::lower_bound(rows, key, {}, member);
  return at != rows.end() && (*at).*member == key ? &*at : nullptr;
}

struct Part {
  uint32_t code, combining;
};

void decompose(uint32_t code, std::vector<Part>& parts) {
  if (code - kSyllables < kSyllableCount) {
    const uint32_t index = code - kSyllables;
    parts.push_back({kLeads + index / (kVowelCount * kTrailCount), 0});
    parts.push_back({kVowels + index / kTrailCount % kVowelCount, 0});
    if (index % kTrailCount != 0) parts.push_back({kTrails + index % kTrailCount, 0});
    return;
  }
  if (const auto* row = row_of(tables().decompositions, code, &Decomposition::code)) {
    decompose(row->first, parts);
    if (row->second != 0) decompose(row->second, parts);
    return;
  }
  const auto* row = row_of(tables().combining, code, &CombiningClass::code);
  parts.push_back({code, row == nullptr ? 0 : row->value});
}

// Puts each run of marks into the order of their classes.
void order(std::vector<Part>& parts) {
  for (auto begin = parts.begin(); begin != parts.end();) {
    if (begin->combining == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, parts.end(), [](const Part& p) { return p.combining == 0; });
    std::stable_sort(begin, end,
                     [](const Part& a, const Part& b) { return a.combining < b.combining; });
    begin = end;
  }
}

// Returns what the two compose to; 0: nothing.
uint32_t composed(uint32_t first, uint32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount)
    return kSyllables + ((first - kLeads) * kVowelCount + second - kVowels) * kTrailCount;
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTrailCount == 0 &&
      second - kTrails - 1 < kTrailCount - 1)
    return first + second - kTrails;
  const auto* row = row_of(tables().compositions, pair_of(first, second), &Composition::pair);
  return row == nullptr ? 0 : row->code;
}

void compose(std::vector<Part>& parts) {
  size_t kept = 0, starter = 0;
  bool has_starter = false;
  for (const Part part : parts) {
    const bool blocked =
        has_starter && kept > starter + 1 && parts[kept - 1].combining >= part.combining;
    const uint32_t code = has_starter && !blocked ? composed(parts[starter].code, part.code) : 0;
    if (code != 0) {
      parts[starter].code = code;
      continue;
    }
    if (part.combining == 0) {
      starter = kept;
      has_starter = true;
    }
    parts[kept++] = part;
  }
  parts.resize(kept);
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

bool changes(uint32_t code) {
  return (classes()[code] & kChanges) != 0;
}

// Returns where the first character that may change begins, from `at` on, and in `before` where the one in front of it
// does; the text's end where there is none.
size_t next_change(std::string_view text, size_t at, size_t& before) {
  const unsigned char* p = bytes_of(text);
  const uint8_t* const all = classes();
  before = at;
  for (; at < text.size();) {
    if (p[at] < 0x80) {
      before = at++;
      continue;
    }
    const utf8::Character c = utf8::decode_valid(p + at);
    if ((all[c.code] & kChanges) != 0) return at;
    before = at;
    at += static_cast<size_t>(c.bytes);
  }
  return at;
}

void append(std::string& text, uint32_t code) {
  const auto put = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

}  // namespace

bool surely_nfc(std::string_view text) {
  size_t before = 0;
  return next_change(text, 0, before) == text.size();
}

NfcSegment nfc_segment(std::string_view text, size_t at) {
  size_t before = at;
  const size_t change = next_change(text, at, before);
  if (change == text.size()) return {change, false};
  // The character before the first that may change belongs to the segment of that one.
  if (before > at) return {before, false};
  size_t end = at;
  while (end < text.size()) {
    const utf8::Character c = utf8::decode_valid(bytes_of(text) + end);
    if (end > change && !changes(c.code)) break;
    end += static_cast<size_t>(c.bytes);
  }
  return {end, true};
}

std::string nfc(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  std::vector<Part> parts;
  for (size_t at = 0; at < text.size();) {
    const NfcSegment segment = nfc_segment(text, at);
    if (!segment.changes) {
      result += text.substr(at, segment.end - at);
      at = segment.end;
      continue;
    }
    parts.clear();
    while (at < segment.end) {
      const utf8::Character c = utf8::decode_valid(bytes_of(text) + at);
      decompose(c.code, parts);
      at += static_cast<size_t>(c.bytes);
    }
    order(parts);
    compose(parts);
    for (const Part& part : parts) append(result, part.code);
  }
  return result;
}

}  // namespace dstrain::unicode
