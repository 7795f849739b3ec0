// What transformers' apply_chat_template makes of templates (golden/make_golden.py).
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/data/chat/chat_template.h"
#include "runtime/data/chat/conversation_encoder.h"
#include "runtime/data/chat/jinja/json_text.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using json = nlohmann::ordered_json;

std::string file_of(const std::string& name) {
  return bytes_of_file(DSTRAIN_SOURCE_DIR "/tests/data/chat/golden/" + name);
}

const json& golden() {
  static const json all = json::parse(file_of("golden.json"));
  return all;
}

jinja::Variables special_tokens() {
  return {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
}

// Returns the lines' messages.
std::vector<ChatLine> conversations() {
  std::vector<ChatLine> lines;
  std::map<std::string, int64_t> ignored;
  for (const json& messages : golden()["conversations"])
    lines.push_back(read_chat_line(
        json{{"messages", messages}}.dump(), [] { return "line"; }, ignored));
  return lines;
}

// Returns the rendered text, or null with the error in `error`.
json rendered(const ChatTemplate& chat_template, const jinja::Value& messages, bool prompt,
              std::string& error) {
  try {
    jinja::Meter meter = chat_template.meter();
    return chat_template.render(messages, prompt, meter).text;
  } catch (const UserError& e) {
    error = e.what();
    return nullptr;
  }
}

TEST_CASE("chat templates render conversations as transformers do") {
  CHECK(golden()["templates"].size() >= 17);
  const std::vector<ChatLine> lines = conversations();
  for (const auto& [name, entry] : golden()["templates"].items()) {
    const ChatTemplate chat_template(entry["text"].get<std::string>(), name, special_tokens());
    CHECK(chat_template.marks_assistant());
    for (size_t i = 0; i < lines.size(); ++i)
      for (const bool prompt : {false, true}) {
        std::string error;
        INFO(name << " " << i << " " << prompt);
        const json found = rendered(chat_template, lines[i].messages.messages, prompt, error);
        INFO(error);
        CHECK(found == entry["rendered"][i][prompt ? 1 : 0]);
      }
  }
}

TEST_CASE("the assistant's tokens are those of transformers, with marks and without") {
  const std::vector<ChatLine> lines = conversations();
  int unmarked = 0;
  for (const std::string tokens : {"llama3", "qwen2"}) {
    const Tokenizer tokenizer(file_of(tokens + "_chat.json"), tokens);
    for (const auto& [name, entry] : golden()["templates"].items())
      for (const char* const kind : {"text", "unmarked"}) {
        if (entry[kind].is_null()) continue;
        const ChatTemplate chat_template(entry[kind].get<std::string>(), name, special_tokens());
        CHECK(chat_template.marks_assistant() == (std::string_view(kind) == "text"));
        ChatEncoding encoding;
        encoding.chat_template = &chat_template;
        ConversationEncoder encoder(tokenizer, encoding);
        std::map<std::string, int64_t> ignored;
        for (size_t i = 0; i < lines.size(); ++i) {
          const json& expected = entry["tokens"][tokens][i];
          if (expected.is_null()) continue;
          INFO(tokens << " " << name << " " << kind << " " << i);
          EncodedConversation found;
          REQUIRE_NOTHROW(encoder.encode(lines[i], found, ignored));
          unmarked += std::string_view(kind) == "unmarked";
          CHECK(found.ids == expected["ids"].get<std::vector<uint32_t>>());
          CHECK(found.counts == expected["mask"].get<std::vector<uint8_t>>());
        }
      }
  }
  CHECK(unmarked >= 110);
}

TEST_CASE("expressions and statements of templates give what Jinja gives") {
  const jinja::Value x = jinja::parse_json(golden()["x"].dump());
  for (const json& snippet : golden()["snippets"]) {
    const auto text = snippet[0].get<std::string>();
    INFO(text);
    json found;
    std::string error;
    try {
      const jinja::Body body = jinja::parse_template(text, "t");
      jinja::Meter meter("t", {}, 0);
      found = jinja::Interpreter(meter, {{"x", x}}).run(body).text;
    } catch (const UserError& e) {
      error = e.what();
    }
    INFO(error);
    CHECK(found == snippet[1]);
    CHECK((!found.is_null() || error.starts_with("t: line ")));
  }
}

}  // namespace
}  // namespace dstrain
