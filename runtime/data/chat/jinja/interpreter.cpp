#include "runtime/data/chat/jinja/interpreter.h"

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/text_growth.h"

namespace dstrain::jinja {

Interpreter::Interpreter(Meter& meter, Variables variables) : meter_(meter) {
  scopes_.push_back(std::move(variables));
  out_ = &rendered_.text;
}

RenderedText Interpreter::run(const Body& body) {
  meter_.begin_rendering();
  execute(body);
  return std::move(rendered_);
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  const Level level(meter_);
  for (const Statement& statement : body)
    if (const Flow flow = execute(statement); flow != Flow::on) return flow;
  return Flow::on;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  meter_.at(statement.line);
  meter_.step();
  switch (statement.kind) {
    case StatementKind::data:
      write(statement.text);
      break;
    case StatementKind::output:
      if (const Value value = evaluate(*statement.value); value.is_text())
        write(*value.text());
      else
        write(printed(meter_, value));
      break;
    case StatementKind::choice:
      return choose(statement);
    case StatementKind::loop:
      return loop(statement);
    case StatementKind::set:
    case StatementKind::set_block:
      set(statement);
      break;
    case StatementKind::macro:
      assign(statement.text,
             std::make_shared<const Function>(Function{statement.text, {}, &statement}));
      break;
    case StatementKind::generation:
      generate(statement);
      break;
    case StatementKind::filter:
      write(printed(meter_, through_filters(statement, captured(statement.branches[0].body, {}))));
      break;
    case StatementKind::leave:
      return Flow::leave;
    case StatementKind::next:
      return Flow::next;
  }
  return Flow::on;
}

void Interpreter::write(std::string_view text) {
  append(meter_, *out_, text);
}

Interpreter::Flow Interpreter::choose(const Statement& statement) {
  for (const Branch& branch : statement.branches)
    if (!branch.condition || holds(meter_, evaluate(*branch.condition)))
      return execute(branch.body);
  return Flow::on;
}

Interpreter::Flow Interpreter::loop(const Statement& statement) {
  std::shared_ptr<const List> items = items_of(meter_, evaluate(*statement.value));
  if (statement.condition) {
    std::vector<Value> kept;
    for (const Value& item : items->items) {
      scopes_.emplace_back();
      assign(statement.names, item, statement.line);
      if (holds(meter_, evaluate(*statement.condition))) {
        meter_.items(1);
        kept.push_back(item);
      }
      scopes_.pop_back();
    }
    items = meter_.list(std::move(kept)).shared_list();
  }
  if (items->items.empty() && statement.branches.size() > 1)
    return execute(statement.branches[1].body);
  for (size_t i = 0; i < items->items.size(); ++i) {
    meter_.step();
    scopes_.emplace_back();
    assign("loop", std::make_shared<const Loop>(Loop{items, i}));
    assign(statement.names, items->items[i], statement.line);
    const Flow flow = execute(statement.branches[0].body);
    scopes_.pop_back();
    if (flow == Flow::leave) break;
  }
  return Flow::on;
}

void Interpreter::set(const Statement& statement) {
  const bool block = statement.kind == StatementKind::set_block;
  const Value value = block ? through_filters(statement, captured(statement.branches[0].body, {}))
                            : evaluate(*statement.value);
  if (!statement.text.empty())
    set_member(statement, value);
  else
    assign(statement.names, value, statement.line);
}

void Interpreter::set_member(const Statement& statement, const Value& value) {
  Namespace* const space = look_up(statement.names[0]).space();
  meter_.at(statement.line);
  if (!space)
    meter_.fail(fmt::format("'{}' is no namespace, whose members can be set", statement.names[0]));
  if (statement.text.starts_with('_'))
    meter_.fail("names of a namespace's members must not begin with '_'");
  if (value.depth() > kDeepestValue)
    meter_.fail(fmt::format("{} cannot be a member of a namespace", value.type_name()));
  space->members.add(statement.text, value);
}

void Interpreter::generate(const Statement& statement) {
  if (out_ != &rendered_.text)
    meter_.fail_unknown("{% generation %} inside of a macro or another block that keeps text");
  const size_t begin = rendered_.text.size();
  const std::string text = captured(statement.branches[0].body, {});
  write(text);
  meter_.bytes(sizeof(TextRange));
  rendered_.generated.push_back({begin, begin + text.size()});
}

std::string Interpreter::captured(const Body& body, Variables variables) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  scopes_.push_back(std::move(variables));
  execute(body);
  scopes_.pop_back();
  out_ = outer;
  return text;
}

Value Interpreter::through_filters(const Statement& statement, std::string text) {
  if (!statement.value) return text;
  scopes_.push_back({{std::string(kBlockText), std::move(text)}});
  Value value = evaluate(*statement.value);
  scopes_.pop_back();
  return value;
}

void Interpreter::assign(const std::vector<std::string>& names, const Value& value, int line) {
  if (names.size() == 1) return assign(names[0], value);
  const List* list = value.list();
  meter_.at(line);
  if (!list || list->items.size() != names.size())
    meter_.fail(
        fmt::format("{} has no {} items for {} variables",
                    list ? fmt::format("a list of {}", list->items.size()) : value.type_name(),
                    names.size(), names.size()));
  for (size_t i = 0; i < names.size(); ++i) assign(names[i], list->items[i]);
}

void Interpreter::assign(const std::string& name, Value value) {
  const auto there = std::ranges::find(scope(), name, &Variables::value_type::first);
  if (there != scope().end())
    there->second = std::move(value);
  else
    scope().emplace_back(name, std::move(value));
}

Value Interpreter::call_macro(const Statement& macro, const CallArguments& arguments) {
  const std::vector<std::string>& names = macro.names;
  if (arguments.given.size() > names.size())
    meter_.fail(fmt::format("the macro '{}' takes at most {} arguments", macro.text, names.size()));
  // A macro sees the variables of the template's top, and its own.
  std::vector<Variables> inner(std::make_move_iterator(scopes_.begin() + 1),
                               std::make_move_iterator(scopes_.end()));
  scopes_.resize(1);
  scopes_.emplace_back();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto named =
        std::ranges::find(arguments.named, names[i], &std::pair<std::string, Value>::first);
    const size_t required = names.size() - macro.defaults.size();
    Value value = Value::undefined(names[i]);
    if (i < arguments.given.size())
      value = arguments.given[i];
    else if (named != arguments.named.end())
      value = named->second;
    else if (i >= required)
      value = evaluate(*macro.defaults[i - required]);
    assign(names[i], std::move(value));
  }
  for (const auto& [name, value] : arguments.named)
    if (std::ranges::find(names, name) == names.end())
      meter_.fail(fmt::format("the macro '{}' has no parameter '{}'", macro.text, name));
  std::string text = captured(macro.branches[0].body, {});
  scopes_.resize(1);
  std::ranges::move(inner, std::back_inserter(scopes_));
  return text;
}

}  // namespace dstrain::jinja
