#include "launcher/report/chart/markup.h"

#include <algorithm>

#include "runtime/config/text.h"

namespace dstrain::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

// U+FFFE and U+FFFF, which are UTF-8 but no characters of XML, at the beginning of `text`.
bool begins_with_noncharacter(std::string_view text) {
  return text.starts_with("\xEF\xBF\xBE") || text.starts_with("\xEF\xBF\xBF");
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '&':
      out += "&amp;";
      return;
    case '<':
      out += "&lt;";
      return;
    case '>':
      out += "&gt;";
      return;
    case '"':
      out += "&quot;";
      return;
    case '\'':
      out += "&#39;";
      return;
    case '\t':
    case '\n':
      out += c;
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  if (byte < 0x20 || byte == 0x7F)
    out += kReplacement;
  else
    out += c;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = std::min(first_invalid_utf8(text), text.size());
    for (size_t i = 0; i < valid; ++i) {
      if (begins_with_noncharacter(text.substr(i, valid - i))) {
        out += kReplacement;
        i += 2;
      } else {
        append_escaped(out, text[i]);
      }
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += kReplacement;
    text.remove_prefix(1);
  }
  return out;
}

size_t characters_in(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, begins_character));
}

std::string shortened(const std::string& text, size_t most) {
  const size_t all = characters_in(text);
  if (all <= most || most < 3) return text;
  const size_t head = (most - 1) / 2, tail = most - 1 - head;
  std::string out;
  size_t number = 0;  // of the character that a byte belongs to, from 1
  for (const char c : text) {
    if (begins_character(c) && ++number == head + 1) out += "…";
    if (number <= head || number > all - tail) out += c;
  }
  return out;
}

}  // namespace dstrain::report
