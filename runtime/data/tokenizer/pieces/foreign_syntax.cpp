#include "runtime/data/tokenizer/pieces/foreign_syntax.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::string_view kHexadecimal = "0-9a-fA-F";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Translator {
 public:
  Translator(std::string_view expression, const std::string& where)
      : expression_(expression), where_(where) {}

  std::string translated() {
    while (at_ < expression_.size()) {
      if (here('\\'))
        escape(false);
      else if (here('['))
        set();
      else if (here('('))
        group();
      else if (here('{'))
        interval();
      else
        take(1);
    }
    return result_;
  }

 private:
  bool here(char c, size_t ahead = 0) const {
    return at_ + ahead < expression_.size() && expression_[at_ + ahead] == c;
  }
  std::string_view rest() const { return expression_.substr(at_); }

  void take(size_t count) {
    result_ += expression_.substr(at_, count);
    at_ += count;
  }
  void put(std::string_view text, size_t count) {
    result_ += text;
    at_ += count;
  }

  // Refuses `count` characters from here on.
  [[noreturn]] void refuse(size_t count) const {
    fail_user(
        "{}: the pattern '{}' has '{}' at offset {}, which is not available: PCRE2, which matches "
        "patterns that are none of the published ones, reads it otherwise than the tokenizers "
        "library",
        where_, expression_, expression_.substr(at_, count), at_);
  }

  void escape(bool in_set) {
    const char c = at_ + 1 < expression_.size() ? expression_[at_ + 1] : '\0';
    if (c == 'h') return put(in_set ? std::string(kHexadecimal) : set_of("["), 2);
    if (c == 'H' && !in_set) return put(set_of("[^"), 2);
    if (std::string_view("HRXKOoNGvVyYQEuU").find(c) != std::string_view::npos) refuse(2);
    // A byte there, a character in PCRE2.
    if (c == 'x' && at_ + 2 < expression_.size() && std::isxdigit(expression_[at_ + 2]) != 0 &&
        !is_digit_below_8(expression_[at_ + 2]))
      refuse(4);
    take(2);
    // \x{41} and \p{L}, whose braces are no interval.
    if (here('{') && std::string_view("xpP").find(c) != std::string_view::npos)
      take(std::min(rest().find('}'), rest().size() - 1) + 1);
  }
  static bool is_digit_below_8(char c) { return c >= '0' && c < '8'; }
  static std::string set_of(std::string_view begin) {
    return std::string(begin) + std::string(kHexadecimal) + "]";
  }

  void set() {
    take(here('^', 1) ? 2 : 1);
    if (here(']')) refuse(1);
    while (at_ < expression_.size() && !here(']')) {
      if (here('\\')) {
        escape(true);
      } else if (rest().starts_with("[:")) {
        take(std::min(rest().find(":]"), rest().size() - 2) + 2);
      } else if (here('[')) {
        refuse(1);
      } else if (rest().starts_with("&&")) {
        refuse(2);
      } else {
        take(1);
      }
    }
    if (here(']')) take(1);
  }

  // Ruby's option m lets a dot match the end of a line, as PCRE2's s does.
  void group() {
    if (here('*', 1)) refuse(2);
    take(1);
    if (!here('?')) return;
    take(1);
    size_t end = at_;
    while (end < expression_.size() &&
           std::string_view("imsx-").find(expression_[end]) != std::string_view::npos)
      ++end;
    if (end == at_ || end == expression_.size() ||
        (expression_[end] != ':' && expression_[end] != ')'))
      return;
    while (at_ < end) {
      if (here('s')) refuse(1);
      if (here('m'))
        put("s", 1);
      else
        take(1);
    }
  }

  // {,3} is no interval in PCRE2; behind one, + and ? are of its own in Ruby.
  void interval() {
    size_t end = at_ + 1;
    while (end < expression_.size() && (is_digit(expression_[end]) || expression_[end] == ','))
      ++end;
    if (end == at_ + 1 || end == expression_.size() || expression_[end] != '}') return take(1);
    const std::string_view inside = expression_.substr(at_ + 1, end - at_ - 1);
    const bool exactly = inside.find(',') == inside.npos;
    const char behind = end + 1 < expression_.size() ? expression_[end + 1] : '\0';
    if (inside.front() == ',' || behind == '+' || (exactly && behind == '?'))
      refuse(end + 1 - at_ + (inside.front() == ',' ? 0 : 1));
    take(end + 1 - at_);
  }

  std::string_view expression_;
  const std::string& where_;
  std::string result_;
  size_t at_ = 0;
};

}  // namespace

std::string pcre2_expression(std::string_view expression, const std::string& where) {
  return Translator(expression, where).translated();
}

}  // namespace dstrain
