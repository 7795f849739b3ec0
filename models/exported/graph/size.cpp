#include "models/exported/graph/size.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain::exported {
namespace {

constexpr int kDeepestExpression = 32;
constexpr size_t kLongestExpression = 10'000;
constexpr int64_t kLargestExponent = 64;

using Kind = SizeExpression::Kind;

std::optional<int64_t> evaluate_expression(const SizeExpression& e, const SymbolValues& symbols) {
  if (e.kind == Kind::number) return e.number;
  if (e.kind == Kind::symbol) {
    const auto it = symbols.find(e.symbol);
    return it == symbols.end() ? std::nullopt : std::optional(it->second);
  }
  std::vector<int64_t> parts;
  for (const SizeExpression& part : e.parts) {
    const std::optional<int64_t> value = evaluate_expression(part, symbols);
    if (!value) return std::nullopt;
    parts.push_back(*value);
  }
  if (e.kind == Kind::power) {
    if (parts.size() != 2 || parts[1] < 0 || parts[1] > kLargestExponent) return std::nullopt;
    parts = std::vector<int64_t>(static_cast<size_t>(parts[1]), parts[0]);
  }
  int64_t result = e.kind == Kind::sum ? 0 : 1;
  for (const int64_t part : parts)
    if (e.kind == Kind::sum ? __builtin_add_overflow(result, part, &result)
                            : __builtin_mul_overflow(result, part, &result))
      return std::nullopt;
  return result;
}

bool has_symbols(const SizeExpression& e) {
  return e.kind == Kind::symbol || std::ranges::any_of(e.parts, has_symbols);
}

void add_symbols_of(const SizeExpression& e, std::set<std::string>& names) {
  if (e.kind == Kind::symbol) names.insert(e.symbol);
  for (const SizeExpression& part : e.parts) add_symbols_of(part, names);
}

bool same_expression(const SizeExpression& a, const SizeExpression& b) {
  return a.kind == b.kind && a.number == b.number && a.symbol == b.symbol &&
         std::ranges::equal(a.parts, b.parts, same_expression);
}

std::string expression_text(const SizeExpression& e) {
  if (e.kind == Kind::number) return fmt::format("{}", e.number);
  if (e.kind == Kind::symbol) return e.symbol;
  std::vector<std::string> parts;
  for (const SizeExpression& part : e.parts)
    parts.push_back(part.kind == Kind::sum && e.kind != Kind::sum
                        ? fmt::format("({})", expression_text(part))
                        : expression_text(part));
  return fmt::format("{}", fmt::join(parts, e.kind == Kind::sum       ? " + "
                                            : e.kind == Kind::product ? "*"
                                                                      : "**"));
}

// Reads one expression of sympy's, in which every node is NAME(PART, ...).
class ExpressionReader {
 public:
  explicit ExpressionReader(std::string_view text) : text_(text) {}

  SizeExpression read() {
    if (text_.size() > kLongestExpression) fail("is longer than {} bytes", kLongestExpression);
    SizeExpression e = read_node(0);
    if (at_ != text_.size()) fail("goes on after its end");
    return e;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_user("the size {} {}", shown_text(text_),
              fmt::format(format, std::forward<Args>(args)...));
  }

  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void expect(char c) {
    while (next() == ' ') ++at_;
    if (next() != c) fail("lacks a {} at byte {}", c, at_);
    ++at_;
    while (next() == ' ') ++at_;
  }

  std::string_view word() {
    const size_t begin = at_;
    while (next() == '_' || (next() >= '0' && next() <= '9') || (next() >= 'a' && next() <= 'z') ||
           (next() >= 'A' && next() <= 'Z'))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  SizeExpression read_node(int depth) {
    if (depth > kDeepestExpression) fail("is nested more than {} deep", kDeepestExpression);
    const std::string_view name = word();
    if (name == "Symbol") return read_symbol();
    if (name == "Integer") return read_number();
    SizeExpression e;
    if (name == "Add")
      e.kind = Kind::sum;
    else if (name == "Mul")
      e.kind = Kind::product;
    else if (name == "Pow")
      e.kind = Kind::power;
    else
      fail(
          "has the function {}, expected sums, products and powers of symbols: give the dimension "
          "a fixed size",
          name.empty() ? "without a name" : shown_text(name));
    expect('(');
    e.parts.push_back(read_node(depth + 1));
    while (next() != ')') {
      expect(',');
      e.parts.push_back(read_node(depth + 1));
    }
    expect(')');
    if (e.kind == Kind::power && (e.parts.size() != 2 || e.parts[1].kind != Kind::number ||
                                  e.parts[1].number < 0 || e.parts[1].number > kLargestExponent))
      fail("has a power whose exponent is not a number from 0 to {}", kLargestExponent);
    return e;
  }

  // Symbol('s27', positive=True, integer=True)
  SizeExpression read_symbol() {
    SizeExpression e;
    e.kind = Kind::symbol;
    expect('(');
    const char quote = next();
    if (quote != '\'' && quote != '"') fail("has a symbol without a name");
    ++at_;
    e.symbol = word();
    if (e.symbol.empty() || next() != quote)
      fail("has a symbol whose name is not letters and digits");
    ++at_;
    while (next() != ')' && next() != '\0' && next() != '(') ++at_;  // what is assumed of it
    expect(')');
    return e;
  }

  SizeExpression read_number() {
    SizeExpression e;
    expect('(');
    const char* const end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, e.number);
    if (error != std::errc()) fail("has a number that is not whole or not of 64 bits");
    at_ = static_cast<size_t>(stop - text_.data());
    expect(')');
    return e;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Size::Size(SizeExpression expression) {
  if (has_symbols(expression)) {
    expression_ = std::make_shared<const SizeExpression>(std::move(expression));
    return;
  }
  const std::optional<int64_t> value = evaluate_expression(expression, {});
  if (!value) fail_user("the size {} does not fit into 64 bits", expression_text(expression));
  value_ = *value;
}

int64_t Size::value() const {
  if (expression_) check(false, "the size {} is not known yet", expression_text(*expression_));
  return value_;
}

std::optional<int64_t> Size::value_with(const SymbolValues& symbols) const {
  return expression_ ? evaluate_expression(*expression_, symbols) : value_;
}

void Size::add_symbols(std::set<std::string>& names) const {
  if (expression_) add_symbols_of(*expression_, names);
}

bool Size::operator==(const Size& other) const {
  if (!expression_ || !other.expression_)
    return !expression_ && !other.expression_ && value_ == other.value_;
  return same_expression(*expression_, *other.expression_);
}

std::string to_string(const Size& size) {
  return size.expression() ? expression_text(*size.expression()) : fmt::format("{}", size.value());
}

Size parse_size(std::string_view text) {
  return Size(ExpressionReader(text).read());
}

}  // namespace dstrain::exported
