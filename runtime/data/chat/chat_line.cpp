#include "runtime/data/chat/chat_line.h"

#include <algorithm>
#include <array>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/chat/jinja/json_text.h"

namespace dstrain {
namespace {

constexpr size_t kMostNames = 100;  // of ignored members that are kept
constexpr std::array<std::string_view, 6> kMembers = {"text",       "messages", "prompt",
                                                      "completion", "chosen",   "rejected"};

using jinja::Dict;
using jinja::Value;

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

class LineReader {
 public:
  LineReader(const Dict& line, const std::function<std::string()>& place)
      : line_(line), place_(place) {}

  ChatLine read() const {
    ChatLine read;
    const bool prompt = has("prompt") || has("completion"),
               preference = has("chosen") || has("rejected");
    const int kinds = has("text") + has("messages") + preference + (prompt && !preference);
    if (kinds == 0)
      fail(
          "the line has no \"text\", \"messages\", \"prompt\" with \"completion\", or \"chosen\" "
          "with \"rejected\"");
    if (kinds > 1 || (preference && has("completion")))
      fail(
          "the line has several of \"text\", \"messages\", \"prompt\" with \"completion\", and "
          "\"chosen\" with "
          "\"rejected\": expected one");
    if (has("text")) {
      read.text = text_at("text");
    } else if (has("messages")) {
      read.kind = ChatLineKind::messages;
      read.messages = messages_at("messages");
    } else if (preference) {
      read.kind = ChatLineKind::preference;
      read.chosen = answer_at("chosen");
      read.rejected = answer_at("rejected");
      if (has("prompt")) read.messages = answer_at("prompt");
    } else {
      read.kind = ChatLineKind::prompt;
      read.text = text_at("prompt");
      read.completion = text_at("completion");
    }
    return read;
  }

 private:
  [[noreturn]] void fail(std::string_view message) const { fail_user("{}: {}", place_(), message); }
  bool has(std::string_view name) const { return line_.find(name) != nullptr; }

  const Value& at(std::string_view name) const {
    const Value* value = line_.find(name);
    if (!value) fail(fmt::format("the line has no \"{}\"", name));
    return *value;
  }

  std::string text_at(std::string_view name) const {
    const Value& value = at(name);
    if (!value.is_text())
      fail(fmt::format("\"{}\": expected a string, found {}", name, json_type(value)));
    return *value.text();
  }

  Value answer_at(std::string_view name) const {
    return at(name).is_text() ? at(name) : messages_at(name);
  }

  Value messages_at(std::string_view name) const {
    const jinja::List* list = at(name).list();
    if (!list)
      fail(fmt::format("\"{}\": expected an array of messages, found {}", name,
                       json_type(at(name))));
    if (list->items.empty()) fail(fmt::format("\"{}\": the array is empty", name));
    std::vector<Value> messages;
    for (size_t i = 0; i < list->items.size(); ++i)
      messages.push_back(message(list->items[i], name, i));
    return jinja::list_of(std::move(messages));
  }

  // Returns a checked message, without members that are null, and with its reasoning under each name that templates read.
  Value message(const Value& value, std::string_view list, size_t number) const {
    const Dict* given = value.dict();
    if (!given)
      fail(fmt::format("{}[{}]: expected an object with \"role\" and \"content\", found {}", list,
                       number, json_type(value)));
    Dict kept;
    for (const auto& [name, member] : given->members())
      if (!member.is_none()) kept.add(name, member);
    for (const char* const name : {"role", "content"}) {
      const Value* member = kept.find(name);
      // A message that calls tools may have no text.
      if (!member && name == std::string_view("content") && kept.find("tool_calls")) continue;
      if (!member) fail(fmt::format("{}[{}]: the message has no \"{}\"", list, number, name));
      if (!member->is_text())
        fail(fmt::format("{}[{}]: \"{}\": expected a string, found {}", list, number, name,
                         json_type(*member)));
    }
    return std::make_shared<const Dict>(with_reasoning(std::move(kept)));
  }

  const Dict& line_;
  const std::function<std::string()>& place_;
};

}  // namespace

bool is_blank_line(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

ChatLine read_chat_line(std::string_view line, const std::function<std::string()>& place,
                        std::map<std::string, int64_t>& ignored) {
  Value value;
  try {
    value = jinja::parse_json(without_byte_order_mark(line), kMembers);
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", place(), e.what()));
  }
  const Dict* object = value.dict();
  if (!object)
    fail_user("{}: expected an object such as {{\"text\": \"...\"}}, found {}", place(),
              json_type(value));
  ChatLine read = LineReader(*object, place).read();
  for (const auto& [name, member] : object->members())
    if (std::ranges::find(kMembers, name) == kMembers.end() &&
        (ignored.size() < kMostNames || ignored.contains(name)))
      ++ignored[name];
  return read;
}

}  // namespace dstrain
