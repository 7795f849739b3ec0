// The formats of conversations that data have.
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/data/chat/chat_fixture.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("formats: conversations of speakers become messages") {
  ChatLine line;
  CHECK(ignored_in(R"({"id": "1", "conversations": [{"from": "system", "value": "s"},
      {"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "weight": 0},
      {"from": "tool", "value": "t"}, {"from": "observation", "value": "o"},
      {"from": "user", "value": "u"}, {"from": "chatgpt", "value": "c", "x": 1}]})",
                   line) == std::map<std::string, int64_t>{{"id", 1}});
  CHECK(line.kind == ChatLineKind::messages);
  CHECK(jinja::repr_of(line.messages.messages) ==
        "[{'role': 'system', 'content': 's'}, {'role': 'user', 'content': 'a'}, "
        "{'role': 'assistant', 'content': 'b'}, {'role': 'tool', 'content': 't'}, "
        "{'role': 'tool', 'content': 'o'}, {'role': 'user', 'content': 'u'}, "
        "{'role': 'assistant', 'content': 'c', 'x': 1}]");
  CHECK(line.messages.weights[2] == MessageWeight::left_out);
  CHECK_THROWS_WITH(read(R"({"conversations": [{"from": "bob", "value": "b"}]})"),
                    Contains("a.jsonl:7: conversations[0]: \"from\" is \"bob\": expected human"));
  // Some data have the names of messages.
  line =
      read(R"({"conversations": [{"role": "user", "content": [{"type": "text", "text": "b"}]}]})");
  CHECK(jinja::repr_of(line.messages.messages) == "[{'role': 'user', 'content': 'b'}]");
  CHECK_THROWS_WITH(read(R"({"conversations": [{"role": 5, "content": "b"}]})"),
                    Contains("conversations[0]: \"role\": expected a string, found number"));
  CHECK_THROWS_WITH(read(R"({"conversations": [{"value": "b"}]})"),
                    Contains("conversations[0]: the message has no \"from\""));
  CHECK_THROWS_WITH(read(R"({"conversations": [{"from": "gpt"}]})"),
                    Contains("conversations[0]: the message has no \"value\""));
}

TEST_CASE("formats: an instruction becomes a prompt of Alpaca") {
  const std::string below = "Below is an instruction that describes a task",
                    write = ". Write a response that appropriately completes the request.\n\n",
                    context = ", paired with an input that provides further context";
  ChatLine line;
  for (const std::string none : {"", R"("input": "", )", R"("input": null, )"}) {
    CHECK(ignored_in(R"({"instruction": "do {}", )" + none + R"("output": "done"})", line).empty());
    CHECK(line.kind == ChatLineKind::prompt);
    CHECK(line.text == below + write + "### Instruction:\ndo {}\n\n### Response:");
    CHECK(line.completion == "done");
  }
  line = read(R"({"instruction": "do", "input": "it", "output": "done"})");
  CHECK(line.text ==
        below + context + write + "### Instruction:\ndo\n\n### Input:\nit\n\n### Response:");
  CHECK_THROWS_WITH(read(R"({"instruction": "a"})"),
                    Contains("the line has \"instruction\" and no \"output\""));
  CHECK_THROWS_WITH(read(R"({"instruction": "a", "output": "b", "text": "c"})"),
                    Contains("several of what a line is made of, \"text\" and \"instruction\""));
  CHECK_THROWS_WITH(read(R"({"instruction": "a", "input": 5, "output": "b"})"),
                    Contains("\"input\": expected a string, found number"));
}

TEST_CASE("formats: content of text parts is their text") {
  const ChatLine line = read(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]}]})");
  CHECK(jinja::repr_of(line.messages.messages) == "[{'role': 'user', 'content': 'a b'}]");
  const auto refuses = [](const std::string& content, const std::string& error) {
    INFO(content);
    CHECK_THROWS_WITH(read(R"({"messages": [{"role": "user", "content": )" + content + "}]}"),
                      Contains("a.jsonl:7: messages[0]: content[0]: expected a part such as "
                               "{\"type\": \"text\", \"text\": \"...\"}, found " +
                               error));
  };
  refuses(R"([{"type": "image_url", "image_url": {}}])", "one of type \"image_url\"");
  refuses(R"([{"type": "text"}])", "one without \"text\"");
  refuses(R"(["a"])", "string");
  refuses(R"([{"text": "a"}])", "an object without \"type\"");
}

TEST_CASE("formats: of a prompt and a completion of messages the answers of the completion count") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const std::string line = "{\"prompt\": [" + message("user", "a") + ", " +
                           message("assistant", "b") + ", " + message("user", "c") +
                           "], \"completion\": [" + message("assistant", "d") + "]}";
  const std::string marked(built_in_template("chatml"));
  for (const std::string& chat_template : {kPlain, marked}) {
    const auto counted = [&](LossOn loss_on) {
      return counted_text(tokenizer, chat_template, read(line), loss_on);
    };
    CHECK(counted(LossOn::usual) == "d<|im_end|>");
    CHECK(counted(LossOn::completion) == "d<|im_end|>");
    CHECK(counted(LossOn::assistant) == "b<|im_end|>d<|im_end|>");
    CHECK_THAT(counted(LossOn::all), Contains("user"));
  }
  CHECK_THROWS_WITH(
      read(R"({"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]})"),
      Contains("\"prompt\" is string and \"completion\" array"));
  CHECK_THROWS_WITH(counted_text(tokenizer, kPlain,
                                 read("{\"prompt\": [" + message("user", "a") +
                                      "], \"completion\": [" + message("user", "b") + "]}")),
                    Contains("none of the messages behind the prompt is the assistant's"));
}

TEST_CASE(
    "formats: a member beside what the line is made of is ignored, though another kind has it") {
  ChatLine line;
  const std::string messages = "\"messages\": [" + message("user", "a") + "]";
  CHECK(ignored_in("{\"prompt\": \"a\", " + messages + ", \"input\": 1}", line) ==
        std::map<std::string, int64_t>{{"input", 1}, {"prompt", 1}});
  CHECK(line.kind == ChatLineKind::messages);
}

TEST_CASE("formats: tools are the template's, as a list or as its JSON") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const std::string chat_template =
      "{% if tools %}{% for t in tools %}{{ t.name }};{% endfor %}{% else %}none;{% endif %}{% for "
      "m in messages %}{{ m.content }}{% endfor %}";
  const auto rendered = [&](const std::string& tools) {
    return counted_text(tokenizer, chat_template,
                        read("{\"messages\": [" + message("user", "a") + "]" + tools + "}"),
                        LossOn::all);
  };
  CHECK(rendered("") == "none;a");
  CHECK(rendered(R"(, "tools": null)") == "none;a");
  CHECK(rendered(R"(, "tools": [])") == "none;a");
  CHECK(rendered(R"(, "tools": [{"name": "f"}, {"name": "g"}])") == "f;g;a");
  CHECK(rendered(R"(, "tools": "[{\"name\": \"f\"}]")") == "f;a");
  CHECK_THROWS_WITH(rendered(R"(, "tools": "{}")"), Contains("\"tools\": expected an array"));
  CHECK_THROWS_WITH(rendered(R"(, "tools": "x")"), Contains("\"tools\": the string is not JSON"));
  CHECK_THROWS_WITH(rendered(R"(, "tools": ["f"])"), Contains("tools[0]: expected an object"));
}

}  // namespace
}  // namespace dstrain
