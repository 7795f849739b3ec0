#include "runtime/data/chat/chat_template.h"

#include <algorithm>
#include <ctime>

namespace dstrain {
namespace {

bool has_marks(const jinja::Body& body) {
  return std::ranges::any_of(body, [](const jinja::Statement& statement) {
    return statement.kind == jinja::StatementKind::generation ||
           std::ranges::any_of(statement.branches,
                               [](const jinja::Branch& branch) { return has_marks(branch.body); });
  });
}

using Names = std::set<std::string, std::less<>>;

void add_names(const jinja::ExpressionPointer& expression, Names& names) {
  if (!expression) return;
  if (expression->kind == jinja::ExpressionKind::name ||
      expression->kind == jinja::ExpressionKind::attribute)
    names.insert(expression->text);
  if (const std::string* const text = expression->value.text()) names.insert(*text);
  for (const jinja::ExpressionPointer& part : expression->parts) add_names(part, names);
}

// Adds the names of variables and attributes, and the texts, that the expressions of a template have.
void add_names(const jinja::Body& body, Names& names) {
  for (const jinja::Statement& statement : body) {
    add_names(statement.value, names);
    add_names(statement.condition, names);
    for (const jinja::ExpressionPointer& value : statement.defaults) add_names(value, names);
    for (const jinja::Branch& branch : statement.branches) {
      add_names(branch.condition, names);
      add_names(branch.body, names);
    }
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text, std::string source, jinja::Variables tokens)
    : source_(std::move(source)),
      tokens_(std::move(tokens)),
      body_(jinja::parse_template(text, source_)),
      marks_assistant_(has_marks(body_)) {
  add_names(body_, names_);
}

jinja::Meter ChatTemplate::meter(const jinja::Limits& limits) const {
  return {source_, limits, std::time(nullptr)};
}

jinja::RenderedText ChatTemplate::render(const jinja::Value& messages, bool add_generation_prompt,
                                         jinja::Meter& meter, const jinja::Value& tools) const {
  jinja::Variables variables = tokens_;
  variables.emplace_back("messages", messages);
  variables.emplace_back("tools", tools);
  variables.emplace_back("documents", jinja::None{});
  variables.emplace_back("add_generation_prompt", add_generation_prompt);
  return jinja::Interpreter(meter, std::move(variables)).run(body_);
}

}  // namespace dstrain
