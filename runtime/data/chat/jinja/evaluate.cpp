// Expressions.
#include <algorithm>
#include <limits>

#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/interpreter.h"
#include "runtime/data/chat/jinja/text_growth.h"

namespace dstrain::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const Level level(meter_);
  meter_.at(expression.line);
  meter_.step();
  const auto part = [&](size_t i) { return evaluate(*expression.parts[i]); };
  const auto optional_part = [&](size_t i) { return expression.parts[i] ? part(i) : Value(); };
  switch (expression.kind) {
    case ExpressionKind::constant:
      return expression.value;
    case ExpressionKind::name:
      return look_up(expression.text);
    case ExpressionKind::list:
    case ExpressionKind::tuple:
    case ExpressionKind::dict:
    case ExpressionKind::concat:
      return collection(expression);
    case ExpressionKind::attribute:
      return attribute_of(meter_, part(0), expression.text);
    case ExpressionKind::item: {
      const Value value = part(0);
      return item_of(meter_, value, part(1));
    }
    case ExpressionKind::slice: {
      const Value value = part(0), begin = optional_part(1), end = optional_part(2);
      return slice_of(meter_, value, begin, end, optional_part(3));
    }
    case ExpressionKind::call:
      return call(expression);
    case ExpressionKind::filter: {
      const Value subject = part(0);
      const CallArguments arguments = arguments_of(expression);
      return apply_filter(meter_, expression.text, subject, arguments);
    }
    case ExpressionKind::test: {
      const Value subject = part(0);
      const CallArguments arguments = arguments_of(expression);
      return apply_test(meter_, expression.text, subject, arguments);
    }
    case ExpressionKind::negation:
      return !holds(meter_, part(0));
    case ExpressionKind::unary:
      return unary(expression);
    case ExpressionKind::binary: {
      const Value left = part(0);
      const Value right = part(1);
      meter_.at(expression.line);
      return calculate(meter_, expression.text, left, right);
    }
    case ExpressionKind::comparison:
      return comparison(expression);
    case ExpressionKind::conjunction: {
      const Value left = part(0);
      return holds(meter_, left) ? part(1) : left;
    }
    case ExpressionKind::disjunction: {
      const Value left = part(0);
      return holds(meter_, left) ? left : part(1);
    }
    case ExpressionKind::conditional:
      return holds(meter_, part(1)) ? part(0) : optional_part(2);
  }
  return {};
}

Value Interpreter::look_up(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto at = std::ranges::find(*scope, name, &Variables::value_type::first);
    if (at != scope->end()) return at->second;
  }
  if (has_function(name)) return std::make_shared<const Function>(Function{name, {}, nullptr});
  return Value::undefined(name);
}

Value Interpreter::comparison(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.words.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    meter_.at(expression.line);
    if (!compare(meter_, expression.words[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::collection(const Expression& expression) {
  if (expression.kind == ExpressionKind::concat) {
    std::string text;
    for (const auto& part : expression.parts) {
      const Value value = evaluate(*part);
      if (const std::string* const own = value.text())
        append(meter_, text, *own);
      else
        append(meter_, text, printed(meter_, value));
    }
    return text;
  }
  meter_.items(expression.parts.size());
  std::vector<Value> items;
  for (const auto& part : expression.parts) items.push_back(evaluate(*part));
  if (expression.kind != ExpressionKind::dict)
    return meter_.list(std::move(items), expression.kind == ExpressionKind::tuple);
  Dict dict;
  for (size_t i = 0; i < items.size(); i += 2) {
    if (!items[i].is_text())
      meter_.fail_unknown(fmt::format("a dict with a name of {}", items[i].type_name()));
    count_member(meter_, *items[i].text());
    dict.add(*items[i].text(), items[i + 1]);
  }
  if (dict.levels() > kDeepestValue)
    meter_.fail(
        fmt::format("a dict holds a namespace, or is nested more than {} deep", kDeepestValue));
  return std::make_shared<const Dict>(std::move(dict));
}

Value Interpreter::unary(const Expression& expression) {
  const Value value = evaluate(*expression.parts[0]);
  const auto whole = value.integer();
  if (whole && *whole != std::numeric_limits<int64_t>::min())
    return expression.text == "-" ? -*whole : *whole;
  if (const auto real = value.real()) return expression.text == "-" ? -*real : *real;
  meter_.fail(fmt::format("'{}' is not for {}", expression.text, value.type_name()));
}

CallArguments Interpreter::arguments_of(const Expression& expression) {
  CallArguments arguments;
  const size_t named = expression.parts.size() - expression.words.size();
  for (size_t i = 1; i < expression.parts.size(); ++i) {
    Value value = evaluate(*expression.parts[i]);
    if (i < named)
      arguments.given.push_back(std::move(value));
    else
      arguments.named.emplace_back(expression.words[i - named], std::move(value));
  }
  meter_.at(expression.line);
  return arguments;
}

Value Interpreter::call(const Expression& expression) {
  const Expression& called = *expression.parts[0];
  const Value value = evaluate(called);
  const CallArguments arguments = arguments_of(expression);
  const Function* const function = value.function();
  if (!function) {
    if (called.kind == ExpressionKind::attribute)
      meter_.fail_unknown(fmt::format("the method '{}'", called.text));
    if (called.kind == ExpressionKind::name && value.is_undefined())
      meter_.fail_unknown(fmt::format("the function '{}'", called.text));
    meter_.fail(fmt::format("{} is called, and is no function", value.type_name()));
  }
  if (function->macro) return call_macro(*function->macro, arguments);
  if (!function->self.is_undefined())
    return call_method(meter_, function->self, function->name, arguments);
  return call_function(meter_, function->name, arguments);
}

}  // namespace dstrain::jinja
