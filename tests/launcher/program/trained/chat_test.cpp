// dstrain chat: messages through a pipe and on a terminal.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/terminal.h"
#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";

// A folder with a run whose model has fresh weights, a tokenizer and a chat template.
struct ChatFolder : TextFolder {
  explicit ChatFolder(int64_t positions = 64, bool with_template = true) {
    json config = json::parse(read("m/config.json"));
    config["max_position_embeddings"] = positions;
    config["initializer_range"] = 0.5;  // so that answers differ
    write("m/config.json", config.dump());
    json settings{{"eos_token", "<|end_of_text|>"}};
    if (with_template) settings["chat_template"] = kTemplate;
    write("m/tokenizer_config.json", settings.dump());
    write("text.txt", std::string(600, 'a'));
    run("--steps 0");
  }
  std::string chat(const std::string& input, const std::string& options = "",
                   int status = 0) const {
    return said("printf '" + input + "' | " + kProgram + " chat --run out --tokens 6 " + options,
                status, status == 0 ? " 2>err" : "");
  }
};

TEST_CASE("chat answers each line, and remembers the lines before it") {
  const ChatFolder folder;
  const std::string fox = folder.chat("the fox\n", "--temperature 0"),
                    dog = folder.chat("the dog\n", "--temperature 0"),
                    both = folder.chat("the fox\nthe dog\n", "--temperature 0");
  CHECK(fox.size() > 1);
  CHECK(fox.ends_with("\n"));
  CHECK(both.starts_with(fox));
  CHECK(both != fox + dog);
  CHECK(folder.chat("the fox\n/reset\nthe dog\n", "--temperature 0") == fox + dog);
  CHECK(folder.chat("the fox\r\n\n/reset\nthe dog", "--temperature 0") == fox + dog);
  CHECK(folder.chat("the fox\n/exit\nthe dog\n", "--temperature 0") == fox);
  CHECK(folder.chat("") == "");
  CHECK(folder.chat("the fox\n", "--seed 4") == folder.chat("the fox\n", "--seed 4"));
  CHECK(folder.chat("the fox\n", "--temperature 0 --system Well") != fox);
}

TEST_CASE("chat forgets the oldest messages, and leaves out a message that is too long") {
  const ChatFolder folder;
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += "the fox\n";
  folder.chat(lines, "--temperature 0");
  CHECK(has(folder.read("err"),
            "the conversation has more than 64 tokens: the oldest messages are forgotten"));
  const std::string fox = folder.chat("the fox\n", "--temperature 0");
  const std::string words(200, 'q');
  CHECK(folder.chat(words + "\nthe fox\n", "--temperature 0 --context 40") == fox);
  CHECK(has(folder.read("err"),
            "what the template adds, and the model sees 40; the message is left out"));
}

TEST_CASE("chat says what it needs") {
  const ChatFolder folder(64, false);
  CHECK(has(only_error(folder.chat("a\n", "", 1)), "give --chat_template chatml|llama3|qwen|FILE"));
  CHECK(has(folder.chat("a\n", "--chat_template chatml"), "\n"));
  CHECK(has(only_error(folder.chat("a\n", "--chat_template chatml --context 100", 1)),
            "--context 100: the model sees 64 tokens at most"));
  const RunFolder characters;
  REQUIRE(characters.train("--steps 0").wait() == 0);
  RunningProgram none = characters.start(DSTRAIN_PROGRAM " chat --run out </dev/null");
  CHECK(none.wait() == 1);
  CHECK(has(only_error(none.text()), "dstrain chat: out has no tokenizer.json"));
}

TEST_CASE(
    "chat on a terminal: ^C ends an answer or a line, and the end of the input ends the program") {
  const ChatFolder folder(60000);
  TerminalProgram terminal(
      folder, TerminalProgram::CommandLine{DSTRAIN_PROGRAM " chat --run out --context 60000 "
                                                           "--tokens 60000 --temperature 0"});
  REQUIRE(terminal.shows("> "));
  terminal.type("the fox\n");
  REQUIRE(terminal.shows("the fox\r\n"));
  terminal.type("\x03");  // the answer is longer than the test
  REQUIRE(terminal.shows("> ", 2));
  terminal.type("half a line\x03");
  REQUIRE(terminal.shows("> ", 3));
  terminal.type("\x04");
  CHECK(terminal.wait(60) == 0);
}

}  // namespace
}  // namespace dstrain
