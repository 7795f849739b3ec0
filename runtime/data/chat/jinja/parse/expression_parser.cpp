#include "runtime/data/chat/jinja/parse/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/builtins.h"

namespace dstrain::jinja {
namespace {

constexpr int kDeepestExpression = 120;

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPointer conditional() {
    const Level level(tokens_.meter());
    ExpressionPointer value = disjunction();
    while (tokens_.is_name("if")) {
      const int line = tokens_.take().line;
      ExpressionPointer condition = disjunction(), otherwise;
      if (tokens_.skip_name("else")) otherwise = conditional();
      value = node(ExpressionKind::conditional, line, "", std::move(value), std::move(condition),
                   std::move(otherwise));
    }
    return value;
  }

  ExpressionPointer disjunction() {
    ExpressionPointer left = conjunction();
    while (tokens_.is_name("or")) {
      const int line = tokens_.take().line;
      left = node(ExpressionKind::disjunction, line, "", std::move(left), conjunction());
    }
    return left;
  }

  ExpressionPointer tuple(bool unconditional) {
    const int line = tokens_.line();
    const auto part = [&] { return unconditional ? disjunction() : conditional(); };
    ExpressionPointer first = part();
    if (!tokens_.is_sign(",")) return first;
    ExpressionPointer all = node(ExpressionKind::tuple, line, "", std::move(first));
    while (tokens_.skip_sign(",") && !ends_tuple()) add(*all, part());
    return all;
  }

  ExpressionPointer filters(ExpressionPointer subject) {
    do {
      subject = filter(std::move(subject));
    } while (tokens_.skip_sign("|"));
    return subject;
  }

 private:
  template <class... Parts>
  ExpressionPointer node(ExpressionKind kind, int line, std::string text, Parts... parts) {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = line;
    made->text = std::move(text);
    (add(*made, std::move(parts)), ...);
    return made;
  }

  void add(Expression& whole, ExpressionPointer part) {
    if (part) whole.depth = std::max(whole.depth, 1 + part->depth);
    if (whole.depth > kDeepestExpression)
      tokens_.meter().fail(
          fmt::format("the expression is nested more than {} deep", kDeepestExpression));
    whole.parts.push_back(std::move(part));
  }

  ExpressionPointer constant(int line, Value value) {
    ExpressionPointer made = node(ExpressionKind::constant, line, "");
    made->value = std::move(value);
    return made;
  }

  bool ends_tuple() const {
    return tokens_.is(TokenKind::output_end) || tokens_.is(TokenKind::block_end) ||
           tokens_.is_sign(")") || tokens_.is_sign("=") || tokens_.is_name("if");
  }

  ExpressionPointer conjunction() {
    ExpressionPointer left = negation();
    while (tokens_.is_name("and")) {
      const int line = tokens_.take().line;
      left = node(ExpressionKind::conjunction, line, "", std::move(left), negation());
    }
    return left;
  }

  ExpressionPointer negation() {
    if (!tokens_.is_name("not")) return comparison();
    const Level level(tokens_.meter());
    const int line = tokens_.take().line;
    return node(ExpressionKind::negation, line, "", negation());
  }

  // Returns the sign of a comparison that stands here, and goes on; empty if none does.
  std::string comparison_sign() {
    constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<", "<=", ">", ">="};
    if (tokens_.is(TokenKind::sign) &&
        std::ranges::find(kSigns, tokens_.peek().text) != kSigns.end())
      return tokens_.take().text;
    if (tokens_.skip_name("in")) return "in";
    if (!tokens_.is_name("not") || tokens_.peek(1).kind != TokenKind::name ||
        tokens_.peek(1).text != "in")
      return "";
    tokens_.take();
    tokens_.take();
    return "not in";
  }

  ExpressionPointer comparison() {
    const int line = tokens_.line();
    ExpressionPointer left = sum();
    std::string sign = comparison_sign();
    if (sign.empty()) return left;
    ExpressionPointer all = node(ExpressionKind::comparison, line, "", std::move(left));
    for (; !sign.empty(); sign = comparison_sign()) {
      all->words.push_back(sign);
      add(*all, sum());
    }
    return all;
  }

  ExpressionPointer sum() {
    ExpressionPointer left = concat();
    while (tokens_.is_sign("+") || tokens_.is_sign("-")) {
      const LexedToken sign = tokens_.take();
      left = node(ExpressionKind::binary, sign.line, sign.text, std::move(left), concat());
    }
    return left;
  }

  ExpressionPointer concat() {
    const int line = tokens_.line();
    ExpressionPointer left = product();
    if (!tokens_.is_sign("~")) return left;
    ExpressionPointer all = node(ExpressionKind::concat, line, "", std::move(left));
    while (tokens_.skip_sign("~")) add(*all, product());
    return all;
  }

  ExpressionPointer product() {
    ExpressionPointer left = power();
    while (tokens_.is_sign("*") || tokens_.is_sign("/") || tokens_.is_sign("//") ||
           tokens_.is_sign("%")) {
      const LexedToken sign = tokens_.take();
      left = node(ExpressionKind::binary, sign.line, sign.text, std::move(left), power());
    }
    return left;
  }

  ExpressionPointer power() {
    ExpressionPointer left = unary(true);
    while (tokens_.is_sign("**")) {
      const LexedToken sign = tokens_.take();
      left = node(ExpressionKind::binary, sign.line, sign.text, std::move(left), unary(true));
    }
    return left;
  }

  ExpressionPointer unary(bool with_filters) {
    const Level level(tokens_.meter());
    ExpressionPointer value;
    if (tokens_.is_sign("-") || tokens_.is_sign("+")) {
      const LexedToken sign = tokens_.take();
      value = node(ExpressionKind::unary, sign.line, sign.text, unary(false));
    } else {
      value = primary();
    }
    value = behind(std::move(value));
    return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
  }

  ExpressionPointer primary() {
    const LexedToken token = tokens_.take();
    switch (token.kind) {
      case TokenKind::name:
        return name(token);
      case TokenKind::string: {
        std::string text = token.text;
        while (tokens_.is(TokenKind::string)) text += tokens_.take().text;
        return constant(token.line, std::move(text));
      }
      case TokenKind::integer:
        return constant(token.line, number<int64_t>(token));
      case TokenKind::real:
        return constant(token.line, number<double>(token));
      default:
        break;
    }
    if (token.text == "(" && token.kind == TokenKind::sign) return in_brackets(token.line);
    if (token.text == "[" && token.kind == TokenKind::sign) {
      ExpressionPointer list = node(ExpressionKind::list, token.line, "");
      each_until("]", [&] { add(*list, conditional()); });
      return list;
    }
    if (token.text == "{" && token.kind == TokenKind::sign) {
      ExpressionPointer dict = node(ExpressionKind::dict, token.line, "");
      each_until("}", [&] {
        add(*dict, conditional());
        tokens_.expect_sign(":");
        add(*dict, conditional());
      });
      return dict;
    }
    tokens_.meter().at(token.line);
    tokens_.meter().fail(fmt::format("expected an expression, found '{}'", printable(token.text)));
  }

  template <class Number>
  Number number(const LexedToken& token) {
    Number value{};
    const char* const end = token.text.data() + token.text.size();
    const auto [stop, status] = std::from_chars(token.text.data(), end, value);
    if (status != std::errc() || stop != end)
      tokens_.meter().fail(fmt::format("the number {} is too large", printable(token.text)));
    return value;
  }

  ExpressionPointer name(const LexedToken& token) {
    const std::string& text = token.text;
    if (text == "true" || text == "True") return constant(token.line, true);
    if (text == "false" || text == "False") return constant(token.line, false);
    if (text == "none" || text == "None") return constant(token.line, None{});
    return node(ExpressionKind::name, token.line, text);
  }

  ExpressionPointer in_brackets(int line) {
    if (tokens_.skip_sign(")")) return node(ExpressionKind::tuple, line, "");
    ExpressionPointer inside = tuple(false);
    tokens_.expect_sign(")");
    return inside;
  }

  // Calls `read` for each part up to `closing`; parts have commas between them, and may have one at the end.
  template <class Read>
  void each_until(std::string_view closing, const Read& read) {
    while (!tokens_.skip_sign(closing)) {
      read();
      if (!tokens_.is_sign(closing)) tokens_.expect_sign(",");
    }
  }

  // Parses what stands directly behind a value: .name, [item] and (arguments).
  ExpressionPointer behind(ExpressionPointer value) {
    while (true) {
      const int line = tokens_.line();
      if (tokens_.skip_sign("."))
        value = attribute(std::move(value), line);
      else if (tokens_.skip_sign("["))
        value = subscript(std::move(value), line);
      else if (tokens_.skip_sign("("))
        arguments(*(value = node(ExpressionKind::call, line, "", std::move(value))));
      else
        return value;
    }
  }

  ExpressionPointer attribute(ExpressionPointer value, int line) {
    if (tokens_.is(TokenKind::integer)) {
      const LexedToken token = tokens_.take();
      return node(ExpressionKind::item, line, "", std::move(value),
                  constant(line, number<int64_t>(token)));
    }
    const LexedToken name = tokens_.expect(TokenKind::name, "a name behind '.'");
    return node(ExpressionKind::attribute, line, name.text, std::move(value));
  }

  ExpressionPointer subscript(ExpressionPointer value, int line) {
    ExpressionPointer parts[3];
    int colons = 0;
    while (!tokens_.skip_sign("]")) {
      if (tokens_.skip_sign(":")) {
        if (++colons > 2) tokens_.fail_expected("']'");
      } else if (parts[colons]) {
        tokens_.fail_expected("']'");
      } else {
        parts[colons] = conditional();
      }
    }
    if (colons > 0)
      return node(ExpressionKind::slice, line, "", std::move(value), std::move(parts[0]),
                  std::move(parts[1]), std::move(parts[2]));
    if (!parts[0]) tokens_.fail_expected("an expression between '[' and ']'");
    return node(ExpressionKind::item, line, "", std::move(value), std::move(parts[0]));
  }

  // Parses arguments up to ')', which belong to `call`.
  void arguments(Expression& call) {
    each_until(")", [&] {
      if (tokens_.is_sign("*") || tokens_.is_sign("**"))
        tokens_.meter().fail_unknown("an argument with * in front");
      const bool named = tokens_.is(TokenKind::name) && tokens_.peek(1).kind == TokenKind::sign &&
                         tokens_.peek(1).text == "=";
      if (named) {
        call.words.push_back(tokens_.take().text);
        tokens_.take();
      } else if (!call.words.empty()) {
        tokens_.fail_expected("NAME=VALUE behind another argument of this form");
      }
      add(call, conditional());
    });
  }

  ExpressionPointer filters_and_tests(ExpressionPointer value) {
    while (true) {
      const int line = tokens_.line();
      if (tokens_.skip_sign("|"))
        value = filter(std::move(value));
      else if (tokens_.skip_name("is"))
        value = test(std::move(value), line);
      else if (tokens_.skip_sign("("))
        arguments(*(value = node(ExpressionKind::call, line, "", std::move(value))));
      else
        return value;
    }
  }

  ExpressionPointer filter(ExpressionPointer value) {
    const LexedToken name = tokens_.expect(TokenKind::name, "the name of a filter");
    if (!has_filter(name.text))
      tokens_.meter().fail_unknown(fmt::format("the filter '{}'", printable(name.text)));
    ExpressionPointer made = node(ExpressionKind::filter, name.line, name.text, std::move(value));
    if (tokens_.skip_sign("(")) arguments(*made);
    return made;
  }

  ExpressionPointer test(ExpressionPointer value, int line) {
    const bool negated = tokens_.skip_name("not");
    const LexedToken name = tokens_.expect(TokenKind::name, "the name of a test");
    if (!has_test(name.text))
      tokens_.meter().fail_unknown(fmt::format("the test '{}'", printable(name.text)));
    ExpressionPointer made = node(ExpressionKind::test, line, name.text, std::move(value));
    if (tokens_.skip_sign("("))
      arguments(*made);
    else if (begins_argument())
      add(*made, behind(primary()));
    return negated ? node(ExpressionKind::negation, line, "", std::move(made)) : std::move(made);
  }

  // Returns whether an argument of a test stands here without brackets.
  bool begins_argument() const {
    if (tokens_.is(TokenKind::string) || tokens_.is(TokenKind::integer) ||
        tokens_.is(TokenKind::real))
      return true;
    if (tokens_.is_sign("[") || tokens_.is_sign("{")) return true;
    constexpr std::array<std::string_view, 7> kOthers = {"else", "or",  "and", "if",
                                                         "in",   "not", "is"};
    return tokens_.is(TokenKind::name) &&
           std::ranges::find(kOthers, tokens_.peek().text) == kOthers.end();
  }

  TokenStream& tokens_;
};

}  // namespace

ExpressionPointer parse_expression(TokenStream& tokens) {
  return ExpressionParser(tokens).conditional();
}

ExpressionPointer parse_unconditional(TokenStream& tokens) {
  return ExpressionParser(tokens).disjunction();
}

ExpressionPointer parse_tuple(TokenStream& tokens, bool unconditional) {
  return ExpressionParser(tokens).tuple(unconditional);
}

ExpressionPointer parse_filters(TokenStream& tokens, ExpressionPointer subject) {
  return ExpressionParser(tokens).filters(std::move(subject));
}

}  // namespace dstrain::jinja
