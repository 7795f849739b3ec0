// Interpreter: renders a parsed template with some variables.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/chat/jinja/builtins.h"
#include "runtime/data/chat/jinja/meter.h"
#include "runtime/data/chat/jinja/syntax.h"

namespace dstrain::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// Bytes of a rendered text.
struct TextRange {
  size_t begin = 0, end = 0;
};

// A rendered text, and the ranges of it that {% generation %} marks, in order.
struct RenderedText {
  std::string text;
  std::vector<TextRange> generated;
};

class Interpreter {
 public:
  // The caller keeps `meter` alive.
  Interpreter(Meter& meter, Variables variables);

  // Renders `body`. Throws UserError, "SOURCE: line 3: ...", for what cannot be evaluated, and at the limits of the meter.
  RenderedText run(const Body& body);

 private:
  enum class Flow { on, leave, next };

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow choose(const Statement& statement);
  Flow loop(const Statement& statement);
  void set(const Statement& statement);
  void set_member(const Statement& statement, const Value& value);
  void generate(const Statement& statement);
  void write(std::string_view text);
  // Runs a block in a scope of its own, and returns what it writes.
  std::string captured(const Body& body, Variables variables);
  // Returns `text` through the filters of a statement, if it has some.
  Value through_filters(const Statement& statement, std::string text);
  // Gives the names of a statement the value, or each an item of it.
  void assign(const std::vector<std::string>& names, const Value& value, int line);

  Value evaluate(const Expression& expression);
  Value look_up(const std::string& name) const;
  Value comparison(const Expression& expression);
  Value collection(const Expression& expression);
  Value call(const Expression& expression);
  Value call_macro(const Statement& macro, const CallArguments& arguments);
  Value unary(const Expression& expression);
  CallArguments arguments_of(const Expression& expression);
  Variables& scope() { return scopes_.back(); }
  void assign(const std::string& name, Value value);

  Meter& meter_;
  std::vector<Variables> scopes_;
  std::string* out_ = nullptr;
  RenderedText rendered_;
};

}  // namespace dstrain::jinja
