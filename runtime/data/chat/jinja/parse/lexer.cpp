#include "runtime/data/chat/jinja/parse/lexer.h"

#include <algorithm>
#include <array>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/parse/string_literal.h"
#include "runtime/data/chat/jinja/python_text.h"

namespace dstrain::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool goes_on_name(char c) {
  return begins_name(c) || is_digit(c);
}

// Returns the text with "\n" for each end of a line and without one at the end.
std::string with_newlines(std::string_view text) {
  std::string lines;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool both = text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
    if (!both) lines += text[i] == '\r' ? '\n' : text[i];
  }
  if (lines.ends_with('\n')) lines.pop_back();
  return lines;
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& source)
      : text_(with_newlines(text)), source_(source) {}

  std::vector<LexedToken> run() {
    while (at_ < text_.size()) data();
    tokens_.push_back({TokenKind::end, "the end of the template", line_});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view message) const {
    fail_user("{}: line {}: {}", source_, line_, message);
  }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  std::string_view rest() const { return std::string_view(text_).substr(at_); }

  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    at_ += bytes;
  }
  void skip_space() { advance(rest().size() - stripped(rest(), Ends::left).size()); }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  // Reads text up to the next tag, and the tag.
  void data() {
    size_t tag = at_;
    while ((tag = text_.find('{', tag)) != text_.npos &&
           (tag + 1 == text_.size() ||
            std::string_view("{%#").find(text_[tag + 1]) == std::string_view::npos))
      ++tag;
    if (tag == text_.npos) {
      add(TokenKind::data, text_.substr(at_));
      return advance(text_.size() - at_);
    }
    const char kind = text_[tag + 1], sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    std::string_view before = std::string_view(text_).substr(at_, tag - at_);
    const std::string_view written = before_tag(before, kind, sign);
    if (!written.empty()) add(TokenKind::data, std::string(written));
    advance(tag - at_);
    const bool has_sign = sign == '-' || sign == '+';
    advance(has_sign ? 3 : 2);
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    expressions(kind == '{');
  }

  // Returns what is written of the text before a tag.
  std::string_view before_tag(std::string_view before, char kind, char sign) const {
    if (sign == '-') return stripped(before, Ends::right);
    if (sign == '+' || kind == '{') return before;
    const size_t newline = before.rfind('\n');
    const size_t begin = newline == before.npos ? 0 : newline + 1;
    const bool whole_line = newline != before.npos || at_ == 0 || text_[at_ - 1] == '\n';
    return whole_line && stripped(before.substr(begin), Ends::left).empty()
               ? before.substr(0, begin)
               : before;
  }

  // Skips what belongs to the end of a tag that begins at `bytes` from here.
  void tag_end(char sign, size_t bytes, bool trims) {
    advance(bytes);
    if (sign == '-') return skip_space();
    if (trims && sign != '+' && peek() == '\n') advance(1);
  }

  void comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) fail("the comment has no end: expected #}");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    tag_end(sign, end + 2 - at_, true);
  }

  // Returns whether a name stands at `at`, and moves `at` behind it and white space.
  bool word_at(size_t& at, std::string_view word) const {
    if (std::string_view(text_).substr(at, word.size()) != word) return false;
    at += word.size();
    while (at < text_.size() && is_space(static_cast<unsigned char>(text_[at]))) ++at;
    return true;
  }

  // Reads {% raw %} ... {% endraw %}, of which "{%" is read. Returns false if another block begins here.
  bool raw() {
    size_t at = at_;
    while (at < text_.size() && is_space(static_cast<unsigned char>(text_[at]))) ++at;
    if (!word_at(at, "raw")) return false;
    const char sign = at < text_.size() ? text_[at] : '\0';
    if (sign == '-') ++at;
    if (std::string_view(text_).substr(at, 2) != "%}") return false;
    tag_end(sign == '-' ? '-' : '\0', at + 2 - at_, false);
    for (size_t tag = at_; (tag = text_.find("{%", tag)) != text_.npos; tag += 2) {
      size_t behind = tag + 2;
      const char before = behind < text_.size() ? text_[behind] : '\0';
      if (before == '-' || before == '+') ++behind;
      while (behind < text_.size() && is_space(static_cast<unsigned char>(text_[behind]))) ++behind;
      if (!word_at(behind, "endraw")) continue;
      const char after = behind < text_.size() ? text_[behind] : '\0';
      if (after == '-' || after == '+') ++behind;
      if (std::string_view(text_).substr(behind, 2) != "%}") continue;
      const std::string_view written =
          before_tag(std::string_view(text_).substr(at_, tag - at_), '%', before);
      if (!written.empty()) add(TokenKind::data, std::string(written));
      tag_end(after, behind + 2 - at_, true);
      return true;
    }
    fail("{% raw %} has no {% endraw %}");
  }

  void expressions(bool output) {
    add(output ? TokenKind::output_begin : TokenKind::block_begin, output ? "{{" : "{%");
    const std::string_view end = output ? "}}" : "%}";
    std::string open;  // brackets that are open
    while (true) {
      skip_space();
      if (at_ >= text_.size()) fail(fmt::format("expected {} before the end of the template", end));
      const bool sign = peek() == '-' || (peek() == '+' && !output);
      if (open.empty() &&
          (rest().starts_with(end) || (sign && rest().substr(1).starts_with(end)))) {
        add(output ? TokenKind::output_end : TokenKind::block_end, std::string(end));
        return tag_end(sign ? peek() : '\0', sign ? 3 : 2, !output);
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = peek();
    if (begins_name(c)) return name();
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string();
    constexpr std::array<std::string_view, 6> kDouble = {"==", "!=", ">=", "<=", "//", "**"};
    const std::string_view two = rest().substr(0, 2);
    if (std::ranges::find(kDouble, two) != kDouble.end()) {
      add(TokenKind::sign, std::string(two));
      return advance(2);
    }
    if (std::string_view("+-/*%~[](){}>=<.:|,").find(c) == std::string_view::npos)
      fail(fmt::format("'{}' begins no token", printable(rest().substr(0, 8))));
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail(fmt::format("unexpected '{}'", c));
      open.pop_back();
    }
    add(TokenKind::sign, std::string(1, c));
    advance(1);
  }

  void name() {
    size_t bytes = 1;
    while (goes_on_name(peek(bytes))) ++bytes;
    if (static_cast<unsigned char>(peek(bytes)) >= 0x80)
      fail("names have ASCII letters, digits and _ only");
    add(TokenKind::name, text_.substr(at_, bytes));
    advance(bytes);
  }

  void number() {
    size_t bytes = 1;
    bool real = false;
    while (is_digit(peek(bytes)) || peek(bytes) == '_') ++bytes;
    const bool after_dot =
        !tokens_.empty() && tokens_.back().kind == TokenKind::sign && tokens_.back().text == ".";
    if (peek(bytes) == '.' && is_digit(peek(bytes + 1)) && !after_dot) {
      real = true;
      ++bytes;
      while (is_digit(peek(bytes)) || peek(bytes) == '_') ++bytes;
    }
    if (const char e = peek(bytes); e == 'e' || e == 'E') {
      const size_t digits = bytes + (peek(bytes + 1) == '+' || peek(bytes + 1) == '-' ? 2 : 1);
      if (is_digit(peek(digits))) {
        real = true;
        bytes = digits;
        while (is_digit(peek(bytes))) ++bytes;
      }
    }
    if (goes_on_name(peek(bytes))) fail("a number is followed by a letter");
    std::string digits = text_.substr(at_, bytes);
    std::erase(digits, '_');
    add(real ? TokenKind::real : TokenKind::integer, digits);
    advance(bytes);
  }

  void string() {
    const char quote = peek();
    size_t bytes = 1;
    while (at_ + bytes < text_.size() && peek(bytes) != quote) bytes += peek(bytes) == '\\' ? 2 : 1;
    if (at_ + bytes >= text_.size()) fail("a string has no end");
    const std::string_view inside = rest().substr(1, bytes - 1);
    if (const auto text = unescaped(inside))
      add(TokenKind::string, *text);
    else
      fail(fmt::format("the string '{}' has an escape that is not available", printable(inside)));
    advance(bytes + 1);
  }

  std::string text_;
  const std::string& source_;
  std::vector<LexedToken> tokens_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<LexedToken> lex_template(std::string_view text, const std::string& source) {
  return Lexer(text, source).run();
}

}  // namespace dstrain::jinja
