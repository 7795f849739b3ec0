#include "launcher/text/conversation.h"

#include <algorithm>
#include <utility>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/chat/template_directory.h"

namespace dstrain {

Conversation::Conversation(const TextModel& model, const std::string& chat_template,
                           const std::string& system)
    : tokenizer_(*model.tokenizer), ends_(model.stops) {
  const std::string given = chat_template.empty() ? template_of_run(model.trained) : chat_template;
  template_ = open_chat_template(model.trained.tokenizer, given, tokenizer_);
  if (!template_)
    fail_user(
        "dstrain chat: {} has no chat template (chat_template.jinja, or chat_template of "
        "tokenizer_config.json): give --chat_template chatml|llama3|qwen|FILE",
        model.trained.tokenizer);
  find_ends();
  if (!system.empty()) messages_.push_back({"system", system});
  kept_ = messages_.size();
}

void Conversation::reset() {
  messages_.resize(kept_);
}

bool Conversation::forget_first() {
  if (messages_.size() < kept_ + 3) return false;
  const auto first = messages_.begin() + static_cast<std::ptrdiff_t>(kept_);
  messages_.erase(first, first + 2);
  return true;
}

std::string Conversation::rendered(const std::vector<Message>& messages, bool for_answer) const {
  std::vector<jinja::Value> list;
  for (const Message& message : messages) {
    auto members = std::make_shared<jinja::Dict>();
    members->add("role", message.role);
    members->add("content", message.text);
    list.emplace_back(std::shared_ptr<const jinja::Dict>(std::move(members)));
  }
  jinja::Meter meter = template_->meter();
  return template_->render(jinja::list_of(std::move(list)), for_answer, meter).text;
}

std::vector<int32_t> Conversation::ids() const {
  std::vector<int32_t> ids;
  for (const uint32_t id : tokenizer_.encode(rendered(messages_, true)))
    ids.push_back(static_cast<int32_t>(id));
  return ids;
}

// What a template writes behind an answer is seen from one that has an answer that nothing else contains.
void Conversation::find_ends() {
  constexpr std::string_view kAnswer = "[answer]";
  std::string text;
  try {
    text = rendered({{"user", "[question]"}, {"assistant", std::string(kAnswer)}}, false);
  } catch (const UserError&) {
    return;  // a template that wants other messages first: the model's own ends are left
  }
  const size_t at = text.rfind(kAnswer);
  if (at == std::string::npos) return;
  const std::string behind = text.substr(at + kAnswer.size());
  for (const uint32_t id : tokenizer_.encode(behind)) {
    if (!tokenizer_.is_special(id)) continue;
    if (std::ranges::find(ends_, static_cast<int32_t>(id)) == ends_.end())
      ends_.push_back(static_cast<int32_t>(id));
    return;
  }
  const size_t first = behind.find_first_not_of(" \n"), last = behind.find_last_not_of(" \n");
  if (first != std::string::npos) end_texts_.push_back(behind.substr(first, last - first + 1));
}

}  // namespace dstrain
