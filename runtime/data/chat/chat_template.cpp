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

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text, std::string source, jinja::Variables tokens)
    : source_(std::move(source)),
      tokens_(std::move(tokens)),
      body_(jinja::parse_template(text, source_)),
      marks_assistant_(has_marks(body_)) {}

jinja::Meter ChatTemplate::meter(const jinja::Limits& limits) const {
  return {source_, limits, std::time(nullptr)};
}

jinja::RenderedText ChatTemplate::render(const jinja::Value& messages, bool add_generation_prompt,
                                         jinja::Meter& meter) const {
  jinja::Variables variables = tokens_;
  variables.emplace_back("messages", messages);
  variables.emplace_back("tools", jinja::None{});
  variables.emplace_back("documents", jinja::None{});
  variables.emplace_back("add_generation_prompt", add_generation_prompt);
  return jinja::Interpreter(meter, std::move(variables)).run(body_);
}

}  // namespace dstrain
