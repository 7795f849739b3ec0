// The statements of a template.
#include <algorithm>
#include <utility>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/parse/expression_parser.h"
#include "runtime/data/chat/jinja/parse/lexer.h"
#include "runtime/data/chat/jinja/syntax.h"

namespace dstrain::jinja {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;  // of a template
constexpr int kDeepestStatement = 60;
constexpr std::string_view kTags =
    "autoescape|block|call|do|extends|from|import|include|trans|with|debug";

class StatementParser {
 public:
  explicit StatementParser(TokenStream& tokens) : tokens_(tokens) {}

  Body whole() {
    Body body = parse_body({});
    if (!tokens_.is(TokenKind::end)) unexpected();
    return body;
  }

 private:
  using Ends = std::vector<std::string_view>;

  [[noreturn]] void unexpected() {
    const std::string& name = tokens_.peek(1).text;
    const std::string tag = fmt::format("{{% {} %}}", printable(name));
    if (one_of(kTags, name)) tokens_.meter().fail_unknown(tag);
    tokens_.meter().fail(fmt::format("unexpected {}", tag));
  }

  // Parses statements up to a tag with one of the names `ends`, of which "{%" is not read; without `ends`, all.
  Body parse_body(const Ends& ends) {
    Body body;
    while (!tokens_.is(TokenKind::end)) {
      if (tokens_.is(TokenKind::block_begin) &&
          std::ranges::find(ends, tokens_.peek(1).text) != ends.end())
        return body;
      body.push_back(statement());
    }
    if (!ends.empty()) tokens_.fail_expected(fmt::format("{{% {} %}}", ends.back()));
    return body;
  }

  Statement statement() {
    Statement made;
    made.line = tokens_.line();
    if (tokens_.is(TokenKind::data)) {
      made.text = tokens_.take().text;
    } else if (tokens_.is(TokenKind::output_begin)) {
      tokens_.take();
      made.kind = StatementKind::output;
      made.value = parse_tuple(tokens_);
      tokens_.expect(TokenKind::output_end, "'}}'");
    } else {
      block(made);
    }
    return made;
  }

  void block(Statement& made) {
    if (depth_ == kDeepestStatement)
      tokens_.meter().fail(fmt::format("blocks are nested more than {} deep", kDeepestStatement));
    ++depth_;
    const std::string name = tokens_.peek(1).text;
    if (name == "if")
      choice(made);
    else if (name == "for")
      loop(made);
    else if (name == "set")
      set(made);
    else if (name == "macro")
      macro(made);
    else if (name == "generation")
      generation(made);
    else if (name == "filter")
      filter(made);
    else if (name == "break" || name == "continue")
      jump(made, name);
    else
      unexpected();
    --depth_;
  }

  void open(std::string_view name) {
    tokens_.expect(TokenKind::block_begin, "'{%'");
    tokens_.expect_name(name);
  }
  void close() { tokens_.expect(TokenKind::block_end, "'%}'"); }
  // Reads a tag that has nothing but a name.
  void tag(std::string_view name) {
    open(name);
    close();
  }
  bool at_tag(std::string_view name) const { return tokens_.peek(1).text == name; }
  std::string name(std::string_view what) { return tokens_.expect(TokenKind::name, what).text; }

  void choice(Statement& made) {
    made.kind = StatementKind::choice;
    std::string_view word = "if";
    do {
      open(word);
      ExpressionPointer condition = parse_tuple(tokens_);
      close();
      Body body = parse_body({"elif", "else", "endif"});
      made.branches.push_back({std::move(condition), std::move(body)});
      word = "elif";
    } while (at_tag("elif"));
    if (at_tag("else")) {
      tag("else");
      made.branches.push_back({nullptr, parse_body({"endif"})});
    }
    tag("endif");
  }

  void names(Statement& made) {
    do {
      if (made.names.size() > 0 && !tokens_.is(TokenKind::name)) return;
      made.names.push_back(name("the name of a variable"));
    } while (tokens_.skip_sign(","));
  }

  void loop(Statement& made) {
    made.kind = StatementKind::loop;
    open("for");
    const bool in_brackets = tokens_.skip_sign("(");
    names(made);
    if (in_brackets) tokens_.expect_sign(")");
    tokens_.expect_name("in");
    made.value = parse_tuple(tokens_, true);
    if (tokens_.skip_name("if")) made.condition = parse_expression(tokens_);
    if (tokens_.is_name("recursive")) tokens_.meter().fail_unknown("{% for ... recursive %}");
    close();
    ++loops_;
    made.branches.push_back({nullptr, parse_body({"else", "endfor"})});
    --loops_;
    if (at_tag("else")) {
      tag("else");
      made.branches.push_back({nullptr, parse_body({"endfor"})});
    }
    tag("endfor");
  }

  void set(Statement& made) {
    open("set");
    names(made);
    if (made.names.size() == 1 && tokens_.skip_sign(".")) made.text = name("a name behind '.'");
    if (tokens_.skip_sign("=")) {
      made.kind = StatementKind::set;
      made.value = parse_tuple(tokens_);
      return close();
    }
    if (made.names.size() != 1) tokens_.fail_expected("'='");
    made.kind = StatementKind::set_block;
    through_filters(made, tokens_.skip_sign("|"), "endset");
  }

  void filter(Statement& made) {
    open("filter");
    made.kind = StatementKind::filter;
    through_filters(made, true, "endfilter");
  }

  // Parses filters, where there are some, the end of the tag, and the block up to `end`, which goes through them.
  void through_filters(Statement& made, bool filters, std::string_view end) {
    if (filters) {
      auto subject = std::make_unique<Expression>();
      subject->kind = ExpressionKind::name;
      subject->line = tokens_.line();
      subject->text = kBlockText;
      made.value = parse_filters(tokens_, std::move(subject));
    }
    close();
    inside(made, end);
  }

  // Parses the only block of a statement, which no break can leave.
  void inside(Statement& made, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    made.branches.push_back({nullptr, parse_body({end})});
    loops_ = loops;
    tag(end);
  }

  void macro(Statement& made) {
    if (depth_ != 1) tokens_.meter().fail_unknown("{% macro %} inside of another block");
    open("macro");
    made.kind = StatementKind::macro;
    made.text = name("the name of a macro");
    tokens_.expect_sign("(");
    while (!tokens_.skip_sign(")")) {
      made.names.push_back(name("the name of a parameter"));
      if (tokens_.skip_sign("="))
        made.defaults.push_back(parse_expression(tokens_));
      else if (!made.defaults.empty())
        tokens_.fail_expected("'=' behind a parameter with a default");
      if (!tokens_.is_sign(")")) tokens_.expect_sign(",");
    }
    close();
    inside(made, "endmacro");
  }

  void generation(Statement& made) {
    made.kind = StatementKind::generation;
    tokens_.take();
    tokens_.take();
    close();
    inside(made, "endgeneration");
  }

  void jump(Statement& made, const std::string& name) {
    if (loops_ == 0) tokens_.meter().fail(fmt::format("{{% {} %}} outside of a loop", name));
    made.kind = name == "break" ? StatementKind::leave : StatementKind::next;
    tag(name);
  }

  TokenStream& tokens_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view text, const std::string& source) {
  if (text.size() > kMostBytes)
    fail_user("{}: the template has more than {} bytes", source, kMostBytes);
  if (first_invalid_utf8(text) != text.npos) fail_user("{}: the template is not UTF-8", source);
  TokenStream tokens(lex_template(text, source), source);
  return StatementParser(tokens).whole();
}

}  // namespace dstrain::jinja
