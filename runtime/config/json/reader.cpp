#include "runtime/config/json/reader.h"

#include <fmt/core.h>

#include <charconv>
#include <unordered_map>
#include <utility>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

constexpr int kEnd = -1;

class Parser {
 public:
  Parser(std::string_view text, Source source) : text_(text), source_(source) {}

  Node whole_config() {
    check_text();
    skip_space();
    Node root;
    if (peek() == '{') {
      root = value(0);
    } else if (peek() == '"') {  // no braces around the whole
      root.place = place();
      root.kind = Node::Kind::object;
      members(root, 0, kEnd, root.place);
    } else {
      fail_here("expected '{{' at the start of the configuration, found {}", found());
    }
    expect_end("configuration");
    return root;
  }

  Node whole_value() {
    check_text();
    skip_space();
    Node node = value(0);
    expect_end("value");
    return node;
  }

 private:
  int peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? static_cast<unsigned char>(text_[at_ + ahead]) : kEnd;
  }

  // Returns line and column of an offset. Offsets ascend except in errors, so that counting continues from the
  // last one and the whole takes linear time.
  SourcePlace place_of(size_t offset) {
    if (offset < counted_) {
      counted_ = 0;
      line_ = column_ = 1;
    }
    for (; counted_ < offset; ++counted_) {
      const auto c = static_cast<unsigned char>(text_[counted_]);
      if (c == '\n') {
        ++line_;
        column_ = 1;
      } else if ((c & 0xc0) != 0x80) {
        ++column_;
      }
    }
    return {source_, line_, column_};
  }
  SourcePlace place() { return place_of(at_); }

  template <class... Args>
  [[noreturn]] void fail_at(size_t offset, fmt::format_string<Args...> format, Args&&... args) {
    const SourcePlace p = place_of(offset);
    throw SyntaxError(p.line, p.column, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) {
    fail_at(at_, format, std::forward<Args>(args)...);
  }

  std::string found() const {
    const int c = peek();
    if (c == kEnd) return "the end of the text";
    if (c > 0x20 && c < 0x7f) return fmt::format("'{}'", static_cast<char>(c));
    return fmt::format("the byte 0x{:02x}", c);
  }

  void check_text() {
    if (text_.size() > kMaxConfigBytes)
      throw SyntaxError(1, 1,
                        fmt::format("the text has {} bytes; a configuration has at most {}",
                                    text_.size(), kMaxConfigBytes));
    text_ = without_byte_order_mark(text_);
    const size_t bad = first_invalid_utf8(text_);
    if (bad != std::string_view::npos)
      fail_at(bad, "the byte 0x{:02x} is not UTF-8: save the file as UTF-8",
              static_cast<unsigned char>(text_[bad]));
  }

  // Skips blanks and comments. Returns whether a line ended.
  bool skip_space() {
    bool newline = false;
    while (true) {
      const int c = peek();
      if (c == '\n') {
        newline = true;
        ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (c == '#' || (c == '/' && peek(1) == '/')) {
        const size_t end = text_.find('\n', at_);
        at_ = end == std::string_view::npos ? text_.size() : end;
      } else if (c == '/' && peek(1) == '*') {
        const size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) fail_here("this comment is never closed: expected '*/'");
        newline |= text_.substr(at_, end - at_).find('\n') != std::string_view::npos;
        at_ = end + 2;
      } else {
        return newline;
      }
    }
  }

  void expect_end(std::string_view what) {
    skip_space();
    if (peek() == '}')
      fail_here("this '}}' closes nothing: remove it, or put its '{{' at the start");
    if (peek() != kEnd) fail_here("expected nothing after the {}, found {}", what, found());
  }

  Node value(int depth) {
    if (depth > kMaxDepth) fail_here("nested deeper than {} levels", kMaxDepth);
    Node node;
    node.place = place();
    const int c = peek();
    if (c == '{') {
      node.kind = Node::Kind::object;
      ++at_;
      members(node, depth, '}', node.place);
    } else if (c == '[') {
      node.kind = Node::Kind::array;
      ++at_;
      items(node, depth);
    } else if (c == '"') {
      node.kind = Node::Kind::string;
      node.text = string();
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      number(node);
    } else {
      word(node);
    }
    return node;
  }

  // Reads the separator after an element. Returns whether another element follows. `closer` may be kEnd.
  bool goes_on(int closer, const SourcePlace& open, std::string_view what) {
    const bool newline = skip_space();
    if (peek() == ',') {
      ++at_;
      skip_space();
      if (peek() == ',') fail_here("expected {} after ',', found another ','", what);
      return peek() != closer;
    }
    if (peek() == closer) return false;
    if (peek() == kEnd)
      fail_here("the '{}' of line {}, column {} is not closed: expected '{}'",
                closer == '}' ? '{' : '[', open.line, open.column, static_cast<char>(closer));
    if (closer == kEnd && peek() == '}')
      fail_here("this '}}' closes nothing: put '{{' at the start of the configuration");
    if (newline && peek() != '}' && peek() != ']') return true;
    if (closer == kEnd) fail_here("expected ',' or a new line, found {}", found());
    fail_here("expected ',' or '{}', found {}", static_cast<char>(closer), found());
  }

  void members(Node& node, int depth, int closer, const SourcePlace& open) {
    std::unordered_map<std::string, SourcePlace> seen;
    skip_space();
    bool more = peek() != closer;
    while (more) {
      if (peek() == kEnd)
        fail_here("the '{{' of line {}, column {} is not closed: expected '}}'", open.line,
                  open.column);
      Member member;
      member.place = place();
      if (peek() != '"') key_error();
      member.key = string();
      const auto [first, fresh] = seen.emplace(member.key, member.place);
      if (!fresh) member.first = first->second;
      skip_space();
      if (peek() != ':')
        fail_here("expected ':' after the key \"{}\", found {}", printable(member.key), found());
      ++at_;
      skip_space();
      member.value = value(depth + 1);
      node.members.push_back(std::move(member));
      more = goes_on(closer, open, "a key");
    }
    if (closer != kEnd) ++at_;
  }

  void items(Node& node, int depth) {
    const SourcePlace open = node.place;
    skip_space();
    bool more = peek() != ']';
    while (more) {
      node.items.push_back(value(depth + 1));
      more = goes_on(']', open, "a value");
    }
    ++at_;
  }

  std::string_view bare_word() const {
    size_t end = at_;
    while (end < text_.size() && !strchr(" \t\r\n,:{}[]\"", text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }

  [[noreturn]] void key_error() {
    const std::string_view w = bare_word();
    if (peek() == '\'') fail_here("expected a key in double quotes, found single quotes");
    if (w.empty()) fail_here("expected a key in double quotes, found {}", found());
    fail_here("expected a key in double quotes, found '{}': write \"{}\"", printable(w),
              printable(w));
  }

  void word(Node& node) {
    if (peek() == kEnd || strchr(",:}]", peek())) fail_here("expected a value, found {}", found());
    std::string_view w = bare_word();
    if (w.substr(0, w.find_first_of("/#")) != "") w = w.substr(0, w.find_first_of("/#"));
    at_ += w.size();
    if (w == "true" || w == "false") {
      node.kind = Node::Kind::boolean;
      node.boolean = w == "true";
    } else if (w != "null") {
      at_ -= w.size();
      word_error(w);
    }
  }

  [[noreturn]] void word_error(std::string_view w) {
    const std::string lower = lower_case(w);
    for (std::string_view known : {"true", "false", "null"})
      if (lower == known) fail_here("'{}' is not JSON: write {}", w, known);
    if (w == "None") fail_here("'None' is not JSON: write null");
    if (lower == "nan" || lower == "inf" || lower == "infinity" || lower == "+inf")
      fail_here("'{}' is not a number a configuration can hold: write a finite one", w);
    if (w[0] == '\'') fail_here("expected a string in double quotes, found single quotes");
    if (w[0] == '+') fail_here("'{}': write the number without '+'", printable(w));
    if (w[0] == '.') fail_here("'{}': write a digit before the point", printable(w));
    fail_here("expected a value, found '{}': write text in double quotes", printable(w));
  }

  void number(Node& node) {
    const std::string_view w = bare_word().substr(0, bare_word().find_first_of("/#"));
    if (!is_json_number(w)) number_error(w);
    node.text = w;
    const char* end = w.data() + w.size();
    // An integer of more than 64 bits is read as a real; the type of its key reports the error.
    if (w.find_first_of(".eE") == std::string_view::npos &&
        std::from_chars(w.data(), end, node.integer).ec == std::errc{}) {
      node.kind = Node::Kind::integer;
      node.real = static_cast<double>(node.integer);
    } else {
      node.kind = Node::Kind::real;
      if (std::from_chars(w.data(), end, node.real).ec != std::errc{})
        fail_here("the number {} is outside the range of a double", printable(w));
    }
    at_ += w.size();
  }

  [[noreturn]] void number_error(std::string_view w) {
    if (lower_case(w) == "-inf" || lower_case(w) == "-infinity")
      fail_here("'{}' is not a number a configuration can hold: write a finite one", w);
    const size_t digit = w[0] == '-' ? 1 : 0;
    if (w.size() > digit + 1 && w[digit] == '0' && w[digit + 1] >= '0' && w[digit + 1] <= '9')
      fail_here("'{}' has a leading zero: remove it", printable(w));
    fail_here("'{}' is not a number; write text in double quotes", printable(w));
  }

  uint32_t hex4() {
    uint32_t code = 0;
    const char* begin = text_.data() + at_;
    const size_t left = text_.size() - at_;
    const auto [end, ec] = std::from_chars(begin, begin + std::min<size_t>(left, 4), code, 16);
    if (ec != std::errc{} || end != begin + 4)
      fail_here("expected four hexadecimal digits after \\u");
    at_ += 4;
    return code;
  }

  void escape(std::string& out) {
    const size_t start = at_++;
    static constexpr std::string_view kLetters = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    const int c = peek();
    const size_t i = c == kEnd ? std::string_view::npos : kLetters.find(static_cast<char>(c));
    if (i != std::string_view::npos) {
      out += kValues[i];
      ++at_;
      return;
    }
    if (c != 'u') fail_at(start, "unknown escape in a string: a backslash itself is written \\\\");
    ++at_;
    uint32_t code = hex4();
    if (code >= 0xd800 && code < 0xdc00 && peek() == '\\' && peek(1) == 'u') {
      at_ += 2;
      const uint32_t low = hex4();
      if (low < 0xdc00 || low > 0xdfff) fail_at(start, "half of a surrogate pair in a string");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xd800 && code <= 0xdfff) {
      fail_at(start, "half of a surrogate pair in a string");
    }
    append_utf8(out, code);
  }

  std::string string() {
    const size_t start = at_++;
    std::string out;
    while (true) {
      const int c = peek();
      if (c == kEnd || c == '\n' || c == '\r')
        fail_at(start, "this string is not closed on its line: expected '\"'");
      if (c == '"') break;
      if (c == '\\') {
        escape(out);
        continue;
      }
      if (c < 0x20 && c != '\t')
        fail_here("the control character 0x{:02x} in a string: write \\u{:04x}", c, c);
      out += static_cast<char>(c);
      ++at_;
    }
    ++at_;
    return out;
  }

  std::string_view text_;
  Source source_;
  size_t at_ = 0, counted_ = 0;
  int line_ = 1, column_ = 1;
};

}  // namespace

Node read_config(std::string_view text, Source source) {
  return Parser(text, source).whole_config();
}

Node read_value(std::string_view text, Source source) {
  return Parser(text, source).whole_value();
}

}  // namespace dstrain
