// What a parsed chat template consists of.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/chat/jinja/value.h"

namespace dstrain::jinja {

enum class ExpressionKind {
  constant,     // value
  name,         // text
  list,         // parts
  tuple,        // parts
  dict,         // parts: key, value, key, value ...
  attribute,    // parts[0].text
  item,         // parts[0][parts[1]]
  slice,        // parts[0][parts[1]:parts[2]:parts[3]], of which the last three may be null
  call,         // parts[0](arguments)
  filter,       // parts[0] | text(arguments)
  test,         // parts[0] is text(arguments)
  negation,     // not parts[0]
  unary,        // text parts[0]: + or -
  binary,       // parts[0] text parts[1]
  concat,       // parts, with ~
  comparison,   // parts[0] words[0] parts[1] words[1] parts[2] ...
  conjunction,  // parts[0] and parts[1]
  disjunction,  // parts[0] or parts[1]
  conditional   // parts[0] if parts[1] else parts[2], which may be null
};

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  int line = 0;
  std::string text;
  Value value;
  std::vector<std::unique_ptr<Expression>> parts;
  std::vector<std::string>
      words;  // of calls, filters and tests the names of the last arguments; of a comparison its signs
  int depth = 1;  // levels of expressions
};
using ExpressionPointer = std::unique_ptr<Expression>;

struct Statement;
using Body = std::vector<Statement>;

enum class StatementKind {
  data,        // text
  output,      // value
  choice,      // if, elif, else: branches
  loop,        // for names in value if condition: branches[0], else branches[1]
  set,         // set names = value, or names[0].text = value
  set_block,   // set names[0]: branches[0], through the filters of `value`
  macro,       // macro text(names, whose last ones have the defaults): branches[0]
  generation,  // branches[0]
  filter,      // branches[0], through the filters of `value`
  leave,       // break
  next         // continue
};

struct Branch;

struct Statement {
  StatementKind kind = StatementKind::data;
  int line = 0;
  std::string text;
  std::vector<std::string> names;
  ExpressionPointer value, condition;
  std::vector<ExpressionPointer> defaults;
  std::vector<Branch> branches;
};

struct Branch {
  ExpressionPointer condition;  // null: otherwise
  Body body;
};

// Parses a template. Throws UserError, "SOURCE: line 3: ...", for what is no template, and by name for parts of the
// language that are not available.
Body parse_template(std::string_view text, const std::string& source);

// Where the text of filter blocks stands in their expression: a name that no template can have.
inline constexpr std::string_view kBlockText = "%block";

}  // namespace dstrain::jinja
