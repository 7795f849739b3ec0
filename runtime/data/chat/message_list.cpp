#include "runtime/data/chat/message_list.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/chat/jinja/json_text.h"

namespace dstrain {
namespace {

using jinja::Dict;
using jinja::Value;

constexpr std::array<std::string_view, 3> kWeights = {"weight", "train", "loss_weight"};

// The names that data in ShareGPT's format have for roles.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kSpeakers = {
    {{"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"chatgpt", "assistant"},
     {"assistant", "assistant"},
     {"system", "system"},
     {"tool", "tool"},
     {"observation", "tool"}}};

// Returns the message with its reasoning as "reasoning_content" and "thinking", as apply_chat_template hands it to
// templates: data has it under one of three names, and a template reads one of them.
Dict with_reasoning(Dict message) {
  const Value* reasoning = nullptr;
  for (const char* const name : {"reasoning_content", "thinking", "reasoning"})
    if (!reasoning) reasoning = message.find(name);
  if (!reasoning) return message;
  Dict named;
  named.add("thinking", *reasoning);
  for (const auto& [name, member] : message.members()) named.add(name, member);
  named.add("reasoning_content", *reasoning);
  return named;
}

class MessageReader {
 public:
  MessageReader(const Value& value, std::string place, MessageNames names)
      : value_(value),
        place_(std::move(place)),
        speakers_(names == MessageNames::speakers &&
                  !(value.dict() && value.dict()->find("role"))) {}

  void add_to(std::vector<Value>& messages, std::vector<MessageWeight>& weights) const {
    const Dict* given = value_.dict();
    const char *const role = speakers_ ? "from" : "role", *const content =
                                                              speakers_ ? "value" : "content";
    if (!given)
      fail(fmt::format("expected an object with \"{}\" and \"{}\", found {}", role, content,
                       json_type(value_)));
    Dict kept;
    for (const auto& [name, member] : given->members()) {
      if (member.is_none() || std::ranges::find(kWeights, name) != kWeights.end()) continue;
      if (name == content)
        kept.add("content", text_of_content(name, member));
      else if (name == role)
        kept.add("role", role_of(name, member));
      else if (name == "content")
        fail("the message has \"from\" beside \"content\": expected \"value\", or \"role\"");
      else
        kept.add(name, member);
    }
    if (!kept.find("role")) fail(fmt::format("the message has no \"{}\"", role));
    // A message that calls tools may have no text.
    if (!kept.find("content") && !kept.find("tool_calls"))
      fail(fmt::format("the message has no \"{}\"", content));
    messages.push_back(std::make_shared<const Dict>(with_reasoning(std::move(kept))));
    weights.push_back(weight_of(*given));
  }

 private:
  [[noreturn]] void fail(std::string_view message) const { fail_user("{}: {}", place_, message); }

  [[noreturn]] void fail_type(std::string_view name, std::string_view expected,
                              const Value& found) const {
    fail(fmt::format("\"{}\": expected {}, found {}", name, expected, json_type(found)));
  }

  Value role_of(std::string_view name, const Value& member) const {
    if (!member.is_text()) fail_type(name, "a string", member);
    if (!speakers_) return member;
    for (const auto& [speaker, role] : kSpeakers)
      if (*member.text() == speaker) return role;
    fail(fmt::format(
        "\"from\" is \"{}\": expected human or user, gpt, chatgpt or assistant, system, tool or "
        "observation",
        printable(*member.text())));
  }

  Value text_of_content(std::string_view name, const Value& member) const {
    if (member.is_text()) return member;
    const jinja::List* const parts = member.list();
    if (!parts) fail_type(name, "a string or an array of text parts", member);
    std::string text;
    for (size_t i = 0; i < parts->items.size(); ++i) {
      const Dict* const part = parts->items[i].dict();
      const Value* const type = part ? part->find("type") : nullptr;
      const Value* const own = part ? part->find("text") : nullptr;
      std::string found;
      if (!part)
        found = json_type(parts->items[i]);
      else if (!type || !type->is_text())
        found = "an object without \"type\"";
      else if (*type->text() != "text")
        found = fmt::format("one of type \"{}\"", printable(*type->text()));
      else if (!own || !own->is_text())
        found = "one without \"text\"";
      if (!found.empty())
        fail(fmt::format(
            "{}[{}]: expected a part such as {{\"type\": \"text\", \"text\": \"...\"}}, found {}",
            name, i, found));
      text += *own->text();
    }
    return text;
  }

  MessageWeight weight_of(const Dict& message) const {
    std::optional<std::pair<std::string_view, bool>> said;
    for (const std::string_view name : kWeights) {
      const Value* const member = message.find(name);
      if (!member || member->is_none()) continue;
      const bool counts = counts_by(name, *member);
      if (said && said->second != counts)
        fail(fmt::format("\"{}\" says that the message {} in the loss, and \"{}\" that it {}",
                         said->first, said->second ? "counts" : "does not count", name,
                         counts ? "does" : "does not"));
      said.emplace(name, counts);
    }
    if (!said) return MessageWeight::usual;
    return said->second ? MessageWeight::counts : MessageWeight::left_out;
  }

  bool counts_by(std::string_view name, const Value& member) const {
    const auto number = member.real();
    if (number && (*number == 0 || *number == 1)) return *number == 1;
    if (number)
      fail(fmt::format(
          "\"{}\" is {}: a message counts in the loss as a whole or not at all: expected 0 or "
          "false, or 1 or true",
          name, jinja::text_of(member)));
    fail_type(name, "0 or false, or 1 or true", member);
  }

  const Value& value_;
  std::string place_;
  bool speakers_;
};

}  // namespace

void add_messages(const Value& value, std::string_view name, MessageNames names,
                  MessageList& list) {
  const jinja::List* const given = value.list();
  if (!given) fail_user("\"{}\": expected an array of messages, found {}", name, json_type(value));
  if (given->items.empty()) fail_user("\"{}\": the array is empty", name);
  std::vector<Value> messages;
  if (const jinja::List* const before = list.messages.list()) messages = before->items;
  for (size_t i = 0; i < given->items.size(); ++i)
    MessageReader(given->items[i], fmt::format("{}[{}]", name, i), names)
        .add_to(messages, list.weights);
  list.messages = jinja::list_of(std::move(messages));
}

}  // namespace dstrain
