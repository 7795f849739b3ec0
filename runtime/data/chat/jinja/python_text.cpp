#include "runtime/data/chat/jinja/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/data/utf8.h"

namespace dstrain::jinja {
namespace {

// Returns the first character of valid UTF-8.
utf8::Character first_character(std::string_view text) {
  return utf8::decode_valid(reinterpret_cast<const unsigned char*>(text.data()));
}

std::string_view last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && !utf8::starts_character(static_cast<unsigned char>(text[at]))) --at;
  return text.substr(at);
}

// The characters that repr() writes as numbers, of those that texts have: controls, separators and formats.
bool is_printable(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0xad) return false;
  if (code == ' ') return true;
  return !is_space(code) && !(code >= 0x200b && code <= 0x200f) &&
         !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2060 && code <= 0x206f) &&
         code != 0xfeff && !(code >= 0xe000 && code <= 0xf8ff);
}

}  // namespace

bool is_space(uint32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
         code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

std::string_view stripped(std::string_view text, Ends ends, const std::string_view* characters) {
  const auto leaves = [characters](std::string_view character) {
    return characters ? characters->find(character) != characters->npos
                      : is_space(first_character(character).code);
  };
  while (ends != Ends::right && !text.empty()) {
    const std::string_view first = text.substr(0, static_cast<size_t>(first_character(text).bytes));
    if (!leaves(first)) break;
    text.remove_prefix(first.size());
  }
  while (ends != Ends::left && !text.empty()) {
    const std::string_view last = last_character(text);
    if (!leaves(last)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

size_t first_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto [code, bytes] = first_character(text.substr(at));
    if (is_space(code)) break;
    at += static_cast<size_t>(bytes);
  }
  return at;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  const auto ends_line = [](uint32_t code) {
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
  };
  std::vector<std::string_view> lines;
  lines.reserve(most_lines(text));
  for (size_t begin = 0, at = 0; at < text.size();) {
    const auto [code, bytes] = first_character(text.substr(at));
    const size_t end = at;
    at += static_cast<size_t>(bytes);
    if (!ends_line(code)) {
      if (at == text.size()) lines.push_back(text.substr(begin));
      continue;
    }
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, end - begin));
    begin = at;
  }
  return lines;
}

size_t most_lines(std::string_view text) {
  // The last bytes of the characters that end lines.
  return 1 + static_cast<size_t>(std::ranges::count_if(text, [](char c) {
           return std::string_view("\n\v\f\r\x1c\x1d\x1e\x85\xa8\xa9").find(c) !=
                  std::string_view::npos;
         }));
}

size_t offset_of_character(std::string_view text, int64_t number) {
  size_t at = 0;
  for (; at < text.size(); ++at)
    if (utf8::starts_character(static_cast<unsigned char>(text[at])) && number-- == 0) break;
  return at;
}

std::vector<size_t> character_places(std::string_view text) {
  std::vector<size_t> places;
  places.reserve(static_cast<size_t>(character_count(text)) + 1);
  for (size_t at = 0; at < text.size(); ++at)
    if (utf8::starts_character(static_cast<unsigned char>(text[at]))) places.push_back(at);
  places.push_back(text.size());
  return places;
}

int64_t character_count(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return utf8::starts_character(static_cast<unsigned char>(c)); });
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void append_quoted(std::string& out, std::string_view text, const CountBytes& count) {
  constexpr size_t kLongest = 10;  // of a character that is written as a number
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  count(2);
  out += quote;
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    count(kLongest);
    if (code == static_cast<unsigned char>(quote) || code == '\\')
      out += {'\\', static_cast<char>(code)};
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (is_printable(code))
      out += text.substr(0, static_cast<size_t>(bytes));
    else
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  out += quote;
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == text.npos) text += ".0";
  return text;
}

void append_json_string(std::string& out, std::string_view text, const CountBytes& count) {
  constexpr size_t kLongest = 6;  // of a character that is written as a number
  count(text.size() + 2);
  out += '"';
  for (const char c : text) {
    constexpr std::string_view kNamed = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
    if (const size_t at = kNamed.find(c); at != kNamed.npos)
      out += {'\\', kNames[at]};
    else if (static_cast<unsigned char>(c) < 0x20) {
      count(kLongest);
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace dstrain::jinja
