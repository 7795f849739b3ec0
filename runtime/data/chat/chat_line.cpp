#include "runtime/data/chat/chat_line.h"

#include <algorithm>
#include <array>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/chat/jinja/json_text.h"

namespace dstrain {
namespace {

using jinja::Dict;
using jinja::Value;

constexpr size_t kMostNames = 100;  // of ignored members that are kept
// The members that hold data. "tools" is one beside messages.
constexpr std::array<std::string_view, 12> kMembers = {
    "text",  "messages",      "prompt",      "completion", "chosen", "rejected",
    "tools", "conversations", "instruction", "input",      "output", "label"};

// The texts in which Alpaca's data were published and trained.
constexpr std::string_view kAlpacaTask =
    "Below is an instruction that describes a task{}. Write a response that appropriately "
    "completes the request.\n\n### Instruction:\n{}\n\n{}### Response:";
constexpr std::string_view kAlpacaContext = ", paired with an input that provides further context";

// A kind of line: the members that make it, all of which it has.
struct Shape {
  std::string_view first, second;  // second: empty where one is enough
  std::string named() const {
    return second.empty() ? fmt::format("\"{}\"", first)
                          : fmt::format("\"{}\" with \"{}\"", first, second);
  }
};
constexpr std::array<Shape, 6> kShapes = {{{"text", ""},
                                           {"messages", ""},
                                           {"prompt", "completion"},
                                           {"conversations", ""},
                                           {"instruction", "output"},
                                           {"chosen", "rejected"}}};

class LineReader {
 public:
  explicit LineReader(const Dict& line) : line_(line) {}

  ChatLine read() {
    const Shape shape = shape_of();
    ChatLine read;
    take(shape.first);
    if (!shape.second.empty()) take(shape.second);
    if (shape.first == "text")
      read.text = text_at("text");
    else if (shape.first == "messages")
      add_to(read, "messages", MessageNames::roles);
    else if (shape.first == "conversations")
      add_to(read, "conversations", MessageNames::speakers);
    else if (shape.first == "chosen")
      preference(read);
    else if (shape.first == "prompt")
      completion(read);
    else
      instruction(read);
    if (read.kind == ChatLineKind::messages) tools(read);
    if (read.kind == ChatLineKind::prompt || read.prompt_messages > 0) label(read);
    for (ChatLine& answer : read.answers)
      if (answer.kind == ChatLineKind::messages) tools(answer);
    return read;
  }

  // Returns whether read() has made something of a member.
  bool has_taken(std::string_view name) const {
    return std::ranges::find(taken_, name) != taken_.end();
  }

 private:
  bool has(std::string_view name) const { return line_.find(name) != nullptr; }
  void take(std::string_view name) { taken_.push_back(name); }

  // Returns the one kind whose members the line has.
  Shape shape_of() const {
    std::vector<Shape> found;
    for (const Shape& shape : kShapes)
      if (has(shape.first) && (shape.second.empty() || has(shape.second))) found.push_back(shape);
    if (found.empty()) fail_shapeless();
    const bool odd = found[0].first == "chosen" && has("completion");
    if (found.size() == 1 && !odd) return found[0];
    fail_user("the line has several of what a line is made of, {} and {}: expected one",
              found[0].named(), odd ? "\"completion\"" : found[1].named());
  }

  [[noreturn]] void fail_shapeless() const {
    for (const Shape& shape : kShapes)
      for (const auto& [there, missing] :
           {std::pair(shape.first, shape.second), std::pair(shape.second, shape.first)})
        if (!there.empty() && has(there))
          fail_user("the line has \"{}\" and no \"{}\"", there, missing);
    std::string all;
    for (const Shape& shape : kShapes)
      all += (all.empty() ? "" : &shape == &kShapes.back() ? " or " : ", ") + shape.named();
    fail_user("the line has none of {}", all);
  }

  std::string text_at(std::string_view name) const {
    const Value& value = *line_.find(name);
    if (!value.is_text()) fail_user("\"{}\": expected a string, found {}", name, json_type(value));
    return *value.text();
  }

  void add_to(ChatLine& read, std::string_view name, MessageNames names) const {
    read.kind = ChatLineKind::messages;
    add_messages(*line_.find(name), name, names, read.messages);
  }

  void preference(ChatLine& read) {
    read.kind = ChatLineKind::preference;
    const bool lists = is_list("chosen");
    if (lists != is_list("rejected"))
      fail_user(
          "\"chosen\" is {} and \"rejected\" {}: expected two strings, or two arrays of messages",
          json_type(*line_.find("chosen")), json_type(*line_.find("rejected")));
    // Where the kinds differ, the prompt is there once more in the answers.
    const bool has_prompt = has("prompt") && is_list("prompt") == lists;
    if (has("prompt")) take("prompt");
    if (has("prompt") && !has_prompt && !lists) text_at("prompt");
    for (const std::string_view name : {"chosen", "rejected"})
      read.answers.push_back(lists ? messages_of_answer(name, has_prompt)
                                   : text_of_answer(name, has_prompt));
    if (has_prompt) return;
    if (lists)
      split_messages(read.answers[0], read.answers[1]);
    else
      split_texts(read.answers[0], read.answers[1]);
  }

  bool is_list(std::string_view name) const { return line_.find(name)->list() != nullptr; }

  ChatLine messages_of_answer(std::string_view name, bool has_prompt) const {
    ChatLine answer;
    if (has_prompt) add_to(answer, "prompt", MessageNames::roles);
    answer.prompt_messages = answer.messages.size();
    add_to(answer, name, MessageNames::roles);
    return answer;
  }

  ChatLine text_of_answer(std::string_view name, bool has_prompt) const {
    ChatLine answer;
    answer.kind = ChatLineKind::prompt;
    if (has_prompt) answer.text = text_at("prompt");
    answer.completion = text_at(name);
    return answer;
  }

  static void split_messages(ChatLine& chosen, ChatLine& rejected) {
    const auto &a = chosen.messages.messages.list()->items,
               &b = rejected.messages.messages.list()->items;
    const auto alike =
        static_cast<size_t>(std::ranges::mismatch(a, b, jinja::equal).in1 - a.begin());
    if (alike == std::min(a.size(), b.size()))
      fail_user("one of \"chosen\" and \"rejected\" begins with all messages of the other");
    if (alike == 0)
      fail_user(
          "\"chosen\" and \"rejected\" begin with different messages, and no \"prompt\" is "
          "there");
    chosen.prompt_messages = rejected.prompt_messages = alike;
  }

  static void split_texts(ChatLine& chosen, ChatLine& rejected) {
    const std::string a = std::move(chosen.completion), b = std::move(rejected.completion);
    auto alike = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
    if (alike == std::min(a.size(), b.size()))
      fail_user("one of \"chosen\" and \"rejected\" begins with all of the other");
    while (alike > 0 && (static_cast<unsigned char>(a[alike]) & 0xc0) == 0x80)
      --alike;  // not within a character
    if (alike > 0 && a[alike - 1] == ' ') --alike;
    if (alike == 0)
      fail_user(
          "\"chosen\" and \"rejected\" begin with different texts, and no \"prompt\" is there");
    chosen.text = rejected.text = a.substr(0, alike);
    chosen.completion = a.substr(alike);
    rejected.completion = b.substr(alike);
  }

  void completion(ChatLine& read) const {
    const bool lists = line_.find("prompt")->list() != nullptr;
    if (lists != (line_.find("completion")->list() != nullptr))
      fail_user(
          "\"prompt\" is {} and \"completion\" {}: expected two strings, or two arrays of messages",
          json_type(*line_.find("prompt")), json_type(*line_.find("completion")));
    if (lists) {
      add_to(read, "prompt", MessageNames::roles);
      read.prompt_messages = read.messages.size();
      add_to(read, "completion", MessageNames::roles);
      return;
    }
    read.kind = ChatLineKind::prompt;
    read.text = text_at("prompt");
    read.completion = text_at("completion");
  }

  void instruction(ChatLine& read) {
    read.kind = ChatLineKind::prompt;
    std::string input;
    if (has("input")) {
      take("input");
      if (!line_.find("input")->is_none()) input = text_at("input");
    }
    const std::string part = input.empty() ? "" : "### Input:\n" + input + "\n\n";
    read.text = fmt::format(fmt::runtime(kAlpacaTask), input.empty() ? "" : kAlpacaContext,
                            text_at("instruction"), part);
    read.completion = text_at("output");
  }

  // Data sets of other kinds have labels that are none of answers.
  void label(ChatLine& read) {
    const Value* const given = line_.find("label");
    if (!given || !given->is_bool()) return;
    take("label");
    read.label = given->truth();
  }

  // Datasets have tools as a list of objects, or as its JSON in a string.
  void tools(ChatLine& read) {
    if (!has("tools")) return;
    take("tools");
    const Value& given = *line_.find("tools");
    read.tools = given;
    if (const std::string* const text = given.text()) try {
        constexpr std::array<std::string_view, 1> kExact = {""};  // members of the array

        read.tools = text->empty() ? Value(jinja::None{}) : jinja::parse_json(*text, kExact);
      } catch (const UserError& e) {
        fail_user("\"tools\": the string {}", e.what());
      }
    if (!read.tools.list() && !read.tools.is_none())
      fail_user("\"tools\": expected an array of objects, found {}", json_type(given));
    if (const jinja::List* const list = read.tools.list())
      for (size_t i = 0; i < list->items.size(); ++i)
        if (!list->items[i].dict())
          fail_user("tools[{}]: expected an object, found {}", i, json_type(list->items[i]));
  }

  const Dict& line_;
  std::vector<std::string_view> taken_;
};

}  // namespace

bool is_blank_line(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

void count_ignored(const std::string& name, std::map<std::string, int64_t>& ignored) {
  if (ignored.size() < kMostNames || ignored.contains(name)) ++ignored[name];
}

ChatLine read_chat_line(std::string_view line, const std::function<std::string()>& place,
                        std::map<std::string, int64_t>& ignored) try {
  const Value value = jinja::parse_json(without_byte_order_mark(line), kMembers);
  const Dict* const object = value.dict();
  if (!object)
    fail_user(
        "expected an object such as {{\"text\": \"...\"}} or {{\"messages\": [...]}}, found {}",
        json_type(value));
  LineReader reader(*object);
  ChatLine read = reader.read();
  for (const auto& [name, member] : object->members())
    if (!reader.has_taken(name)) count_ignored(name, ignored);
  return read;
} catch (const UserError& e) {
  throw UserError(fmt::format("{}: {}", place(), e.what()));
}

}  // namespace dstrain
