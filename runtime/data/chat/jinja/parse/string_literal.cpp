#include "runtime/data/chat/jinja/parse/string_literal.h"

#include <algorithm>
#include <charconv>

#include "runtime/config/text.h"

namespace dstrain::jinja {
namespace {

// Appends the character of a number in base `base` at the beginning of `digits`. Returns how many digits it has, 0 if
// there are fewer than `least` or it is no character.
size_t append_code(std::string& out, std::string_view digits, size_t least, size_t most, int base) {
  const std::string_view some = digits.substr(0, most);
  uint32_t code = 0;
  const auto [stop, status] = std::from_chars(some.data(), some.data() + some.size(), code, base);
  const auto count = static_cast<size_t>(stop - some.data());
  if (status != std::errc() || count < least || code > 0x10ffff ||
      (code >= 0xd800 && code < 0xe000))
    return 0;
  append_utf8(out, code);
  return count;
}

}  // namespace

std::optional<std::string> unescaped(std::string_view literal) {
  std::string out;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i];
      continue;
    }
    const char c = literal[++i];
    constexpr std::string_view kNames = "\\'\"abfnrtv", kNamed = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t at = kNames.find(c); at != kNames.npos) {
      out += kNamed[at];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      if (append_code(out, literal.substr(i + 1), digits, digits, 16) == 0) return std::nullopt;
      i += digits;
    } else if (c >= '0' && c <= '7') {
      const size_t count = append_code(out, literal.substr(i), 1, 3, 8);
      if (count == 0) return std::nullopt;
      i += count - 1;
    } else if (c == 'N') {
      return std::nullopt;
    } else if (c != '\n') {
      out += {'\\', c};
    }
  }
  return out;
}

}  // namespace dstrain::jinja
