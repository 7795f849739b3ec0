#include "runtime/data/chat/jinja/letter_case.h"

#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/python_text.h"
#include "runtime/data/chat/jinja/text_growth.h"

namespace dstrain::jinja {
namespace {

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
char raised(char c) {
  return is_lower(c) ? static_cast<char>(c - 'a' + 'A') : c;
}
char lowered(char c) {
  return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

Value in_case(Meter& meter, std::string_view name, const std::string& text) {
  if (!is_ascii(text)) meter.fail_unknown(fmt::format("'{}' of a text that is not ASCII", name));
  meter.bytes(text.size() + kTextBytes);
  std::string result = text;
  bool inside = false;  // of a word
  for (char& c : result) {
    const bool raises = name == "upper" || (name != "lower" && !inside);
    c = raises ? raised(c) : lowered(c);
    inside = name == "capitalize" || is_lower(c) || is_upper(c);
  }
  return result;
}

Value titled(Meter& meter, const std::string& text) {
  if (!is_ascii(text)) meter.fail_unknown("'title' of a text that is not ASCII");
  meter.bytes(text.size() + kTextBytes);
  std::string result = text;
  bool inside = false;  // of a word
  for (char& c : result) {
    c = inside ? lowered(c) : raised(c);
    inside = !is_space(static_cast<unsigned char>(c)) &&
             std::string_view("-({[<").find(c) == std::string_view::npos;
  }
  return result;
}

Value replaced(Meter& meter, std::string_view text, std::string_view before, std::string_view after,
               int64_t most) {
  std::string result;
  size_t at = 0;
  while (most != 0) {
    const size_t found = text.find(before, at);
    if (found == text.npos) break;
    constexpr size_t kLongestCharacter = 4;
    meter.bytes(kLongestCharacter);
    append(meter, result, text.substr(at, found - at));
    append(meter, result, after);
    at = found + before.size();
    --most;
    if (!before.empty()) continue;
    // An empty text is found before each character and at the end.
    if (at == text.size()) return result;
    do {
      result += text[at++];
    } while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  }
  append(meter, result, text.substr(at));
  return result;
}

}  // namespace dstrain::jinja
