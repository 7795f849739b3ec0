#include "runtime/config/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <system_error>
#include <utility>

namespace dstrain {
namespace {

// Returns the bytes of the UTF-8 character at the start of `s`; 0 if it is not valid.
size_t utf8_length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = byte(0);
  if (c < 0x80) return 1;
  const size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
  if (c < 0xc2 || c > 0xf4 || s.size() < n) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // The second byte excludes overlong forms, surrogates, and codes beyond U+10FFFF.
  if ((c == 0xe0 && byte(1) < 0xa0) || (c == 0xed && byte(1) > 0x9f) ||
      (c == 0xf0 && byte(1) < 0x90) || (c == 0xf4 && byte(1) > 0x8f))
    return 0;
  return n;
}

char folded(char c) {
  if (c == '-') return '_';
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

size_t first_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_length(text.substr(i, 4));
    if (n == 0) return i;
    i += n;
  }
  return std::string_view::npos;
}

void append_utf8(std::string& out, uint32_t code) {
  const auto push = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xc0 | (code >> 6));
    push(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    push(0xe0 | (code >> 12));
    push(0x80 | ((code >> 6) & 0x3f));
    push(0x80 | (code & 0x3f));
  } else {
    push(0xf0 | (code >> 18));
    push(0x80 | ((code >> 12) & 0x3f));
    push(0x80 | ((code >> 6) & 0x3f));
    push(0x80 | (code & 0x3f));
  }
}

std::string counted(int64_t count, std::string_view what, std::string_view plural) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : plural);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool is_json_number(std::string_view s) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < s.size() && s[i] >= '0' && s[i] <= '9') ++i;
    return i - start;
  };
  if (i < s.size() && s[i] == '-') ++i;
  const size_t first = i;
  const size_t whole = digits();
  if (whole == 0 || (whole > 1 && s[first] == '0')) return false;
  if (i < s.size() && s[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
    ++i;
    if (i < s.size() && (s[i] == '+' || s[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == s.size();
}

std::string printable(std::string_view text) {
  std::string out;
  int characters = 0;
  for (size_t i = 0; i < text.size();) {
    if (++characters > 60) return out + "...";
    const size_t n = std::max<size_t>(1, utf8_length(text.substr(i, 4)));
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f || utf8_length(text.substr(i, 4)) == 0)
      out += '?';
    else
      out += text.substr(i, n);
    i += n;
  }
  return out;
}

std::string alternatives(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 < numbers.size() ? ", " : " or ", numbers[i]);
  return text;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before, last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const char x = folded(a[i - 1]), y = folded(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y)});
      if (i > 1 && j > 1 && x == folded(b[j - 2]) && y == folded(a[i - 2]))
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 100) return "";
  std::string best;
  int least = static_cast<int>(std::max<size_t>(2, word.size() / 4)) + 1;
  for (const std::string& c : candidates) {
    const int d = edit_distance(word, c);
    // If two are as near, takes the one that begins like the word: that letter is seldom mistyped.
    const auto begins = [&](const std::string& other) {
      return !word.empty() && !other.empty() && folded(other[0]) == folded(word[0]);
    };
    if (d < least || (d == least && !best.empty() && begins(c) && !begins(best))) {
      least = d;
      best = c;
    }
  }
  return best;
}

bool same_letters(std::string_view a, std::string_view b) {
  const auto letters = [](std::string_view text) {
    std::string kept = lower_case(text);
    std::erase_if(kept, [](char c) { return c == '-' || c == '_' || c == ' '; });
    return kept;
  };
  return letters(a) == letters(b);
}

bool one_of(std::string_view list, std::string_view word) {
  while (true) {
    const size_t bar = list.find('|');
    if (list.substr(0, bar) == word) return true;
    if (bar == std::string_view::npos) return false;
    list.remove_prefix(bar + 1);
  }
}

std::vector<std::string> split_words(std::string_view list) {
  std::vector<std::string> words;
  while (true) {
    const size_t bar = list.find('|');
    words.emplace_back(list.substr(0, bar));
    if (bar == std::string_view::npos) return words;
    list.remove_prefix(bar + 1);
  }
}

ByteText split_bytes(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 9> units{{{"KiB", 0x1p10},
                                                                      {"MiB", 0x1p20},
                                                                      {"GiB", 0x1p30},
                                                                      {"TiB", 0x1p40},
                                                                      {"kB", 1e3},
                                                                      {"KB", 1e3},
                                                                      {"MB", 1e6},
                                                                      {"GB", 1e9},
                                                                      {"TB", 1e12}}};
  for (const auto& [unit, bytes] : units)
    if (text.ends_with(unit)) return {text.substr(0, text.size() - unit.size()), bytes};
  return {text, 0};
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  const auto [number, unit] = split_bytes(text);
  const char* const end = number.data() + number.size();
  double scaled = 0;
  int64_t bytes = 0;
  const auto [stop, status] = unit > 0 ? std::from_chars(number.data(), end, scaled)
                                       : std::from_chars(number.data(), end, bytes);
  if (status != std::errc() || stop != end || bytes < 0 || !(scaled >= 0 && scaled <= kMostUnits))
    return std::nullopt;
  return unit > 0 ? static_cast<int64_t>(unit * scaled) : bytes;
}

}  // namespace dstrain
