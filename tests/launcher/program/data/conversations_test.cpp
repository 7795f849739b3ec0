// Runs of a model from a folder of Hugging Face on conversations: its chat template, and which tokens count in the loss.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";
const std::string kKept = "out/cache/chats.jsonl.bin";

std::string conversation(const std::string& question, const std::string& answer) {
  return json{{"messages",
               {{{"role", "user"}, {"content", question}},
                {{"role", "assistant"}, {"content", answer}}}}}
             .dump() +
         "\n";
}

std::string completion(const std::string& prompt, const std::string& completion) {
  return json{{"prompt", prompt}, {"completion", completion}}.dump() + "\n";
}

// A folder whose model has a chat template in its settings; and the lines chats.jsonl.
struct ChatFolder : TextFolder {
  ChatFolder() {
    write("m/tokenizer_config.json",
          json{{"eos_token", "<|end_of_text|>"}, {"chat_template", kTemplate}}.dump());
    std::string lines;
    for (int i = 0; i < 6; ++i)
      lines += conversation("the fox?", "the quick brown fox jumps over the lazy dog") +
               completion("the quick", " brown fox jumps over the lazy dog again and again");
    write("chats.jsonl", lines);
  }
  std::string chats(const std::string& options = "", int status = 0) const {
    return run("--data chats.jsonl " + options, status);
  }
  std::string tokenized(const std::string& options = "") const {
    return said(std::string(kProgram) + " tokenize --model m --output own.bin --data chats.jsonl " +
                options);
  }
  bool is_there(const std::string& name) const { return fs::exists(root / name); }
};

TEST_CASE(
    "conversations are tokenized by the model's template, and trained as tokenize's file is") {
  const ChatFolder folder;
  const std::string first = folder.chats();
  CHECK(has(first, " count in the loss, tokenized into " + folder.path(kKept)));
  folder.tokenized();
  for (const std::string end : {"", ".documents", ".targets"})
    CHECK(folder.read(kKept + end) == folder.read("own.bin" + end));
  const std::string targets = folder.read(kKept + ".targets");
  const auto counted = std::count(targets.begin(), targets.end(), '\1');
  CHECK((counted > 0 && counted < std::ssize(targets)));
  CHECK(has(first, " of which " + std::to_string(counted) + " count in the loss"));
  const std::string weights = folder.read("out/model.safetensors");
  CHECK(has(folder.chats(), "count in the loss, tokenized before"));
  CHECK(folder.read("out/model.safetensors") == weights);
  CHECK_FALSE(has(folder.run("--data own.bin"), "tokenized"));
  CHECK(folder.read("out/model.safetensors") == weights);
  // All tokens count.
  fs::remove(folder.root / "own.bin.targets");
  folder.run("--data own.bin");
  const std::string all = folder.read("out/model.safetensors");
  CHECK(all != weights);
  CHECK_FALSE(has(folder.chats("--set dstrain.data.loss_on=all"), "count in the loss"));
  CHECK(folder.read("out/model.safetensors") == all);
  CHECK_FALSE(folder.is_there(kKept + ".targets"));
}

TEST_CASE("a run takes the formats that tokenize takes, and says what of them is not read") {
  const ChatFolder folder;
  const std::string array =
      "[" + completion("the quick", " brown fox jumps over the lazy dog again and again") + "," +
      R"({"conversations": [{"from": "human", "value": "the fox?", "name": "x"},
          {"from": "gpt", "value": "the quick brown fox jumps over", "weight": 0},
          {"from": "human", "value": "the dog?"}, {"from": "gpt", "value": "the lazy dog jumps over"}]},
      {"instruction": "say", "output": "the quick brown fox jumps over the lazy dog"}, )" +
      R"({"prompt": [{"role": "user", "content": [{"type": "text", "text": "the fox?"}]}],
          "completion": [{"role": "assistant", "content": "the quick brown fox"}]}])";
  folder.write("chats.json", array);
  const std::string said = folder.run("--data chats.json");
  INFO(said);
  CHECK(has(said, "members of lines that are not used are left out: messages[].name (1)"));
  folder.said(std::string(kProgram) + " tokenize --model m --output own.bin --data chats.json");
  for (const std::string end : {"", ".documents", ".targets"})
    CHECK(folder.read("out/cache/chats.json.bin" + end) == folder.read("own.bin" + end));
  folder.write("bad.jsonl",
               R"({"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]})");
  CHECK(
      has(only_error(folder.run("--data bad.jsonl", 1)),
          "bad.jsonl:1: messages[0]: \"weight\" is 0.5: a message counts in the loss as a whole"));
}

TEST_CASE("eval of conversations counts the tokens that count in the loss") {
  const ChatFolder folder;
  folder.chats();
  folder.tokenized();
  const std::string targets = folder.read("own.bin.targets");
  const json of_lines = folder.evaluated("chats.jsonl"), of_ids = folder.evaluated("own.bin");
  CHECK(of_lines == of_ids);
  CHECK(of_lines["tokens"] == std::count(targets.begin() + 1, targets.end(), '\1'));
  CHECK(of_lines["bytes"].is_null());
  CHECK(json::parse(folder.said(
            std::string(kProgram) + " eval --json --model out --seq_len 8 --data chats.jsonl", 0,
            " 2>err")) == of_lines);
  fs::remove(folder.root / "own.bin.targets");
  CHECK(folder.evaluated("own.bin")["tokens"] == std::ssize(targets) - 1);
  folder.chats("--set dstrain.data.loss_on=all");  // as the run does
  const json all = folder.evaluated("chats.jsonl");
  CHECK(all["tokens"] == std::ssize(targets) - 1);
  CHECK(all["bytes"].is_null());
}

TEST_CASE("eval writes messages by the template that --chat_template names") {
  const ChatFolder folder;
  folder.chats();
  folder.write("own.jinja", kTemplate);
  folder.write("longer.jinja", "{{ '<|begin_of_text|>' }}" + std::string(kTemplate));
  const json usual = folder.evaluated("chats.jsonl");
  CHECK(folder.evaluated("chats.jsonl --chat_template own.jinja") == usual);
  const json longer = folder.evaluated("chats.jsonl --chat_template longer.jinja");
  CHECK(longer["tokens"] == usual["tokens"]);
  CHECK(longer["loss"] != usual["loss"]);
  CHECK(has(folder.said(
                std::string(kProgram) + " eval --run out --data text.txt --chat_template own.jinja",
                1, " 2>&1"),
            "--chat_template own.jinja: it writes the messages of JSON lines"));
}

TEST_CASE("a token file of conversations is made again with another template or other keys") {
  const ChatFolder folder;
  const auto makes = [&](const std::string& options = "") {
    return has(folder.chats("--steps 0 " + options), "tokenized into");
  };
  CHECK(makes());
  CHECK_FALSE(makes());
  const std::string ids = folder.read(kKept), targets = folder.read(kKept + ".targets");
  const auto made_of = [&] {  // without the states of files, which are new ones each time
    json record = json::parse(folder.read(kKept + ".json"));
    record.erase("files");
    record["text"].erase("looked_ns");
    return record;
  };
  const json as_usual = made_of();
  folder.write("m/chat_template.jinja", "{{ '<|begin_of_text|>' }}" + std::string(kTemplate));
  CHECK(makes());
  CHECK(folder.read(kKept).size() > ids.size());
  CHECK_FALSE(makes());
  fs::remove(folder.root / "m/chat_template.jinja");
  CHECK(makes());
  CHECK(folder.read(kKept) == ids);
  CHECK(made_of() == as_usual);
  CHECK(makes("--set dstrain.data.skip_invalid=true"));
  CHECK(folder.read(kKept) == ids);
  CHECK_FALSE(makes("--set dstrain.data.skip_invalid=true"));
  CHECK(makes("--set dstrain.data.loss_on=all"));
  CHECK(makes());
  // Without the file that says which tokens count, all would.
  fs::remove(folder.root / (kKept + ".targets"));
  CHECK(makes());
  CHECK(folder.read(kKept + ".targets") == targets);
  CHECK(makes("--set dstrain.data.loss_on=all"));
  folder.write(kKept + ".targets", targets);  // of another run
  CHECK(makes("--set dstrain.data.loss_on=all"));
  CHECK_FALSE(folder.is_there(kKept + ".targets"));
}

TEST_CASE(
    "a run writes messages by the template that its key names, and leaves it beside the weights") {
  const ChatFolder folder;
  folder.write("m/tokenizer_config.json", R"({"eos_token": "<|end_of_text|>"})");
  folder.write("own.jinja", kTemplate);
  const std::string key = "--set dstrain.data.chat_template=";
  CHECK(has(folder.chats(key + "own.jinja"), "count in the loss, tokenized into"));
  folder.tokenized("--chat_template own.jinja");
  for (const std::string end : {"", ".documents", ".targets"})
    CHECK(folder.read(kKept + end) == folder.read("own.bin" + end));
  CHECK(folder.read("out/chat_template.jinja") == kTemplate);
  const json evaluated = folder.evaluated("chats.jsonl");
  CHECK(evaluated == folder.evaluated("own.bin"));
  CHECK(has(folder.chats("--num_gpus 2 " + key + "own.jinja"), "tokenized before"));
  // What was trained with holds for eval, whatever becomes of the file; a run tokenizes anew.
  folder.write("own.jinja", "{{ '<|begin_of_text|>' }}" + std::string(kTemplate));
  CHECK(folder.evaluated("chats.jsonl")["tokens"] == evaluated["tokens"]);
  CHECK(has(folder.chats("--steps 0 " + key + "own.jinja"), "tokenized into"));
  CHECK_FALSE(has(folder.chats("--steps 0 " + key + "own.jinja"), "tokenized into"));
  CHECK(folder.read(kKept).size() > folder.read("own.bin").size());
  CHECK(has(folder.chats("--steps 0 " + key + "chatml"), "tokenized into"));
  folder.tokenized("--chat_template chatml");
  CHECK(folder.read(kKept) == folder.read("own.bin"));
}

TEST_CASE("a resume with another chat template says so, and leaves that beside the weights") {
  const ChatFolder folder;
  folder.write("own.jinja", "{{ '<|begin_of_text|>' }}" + std::string(kTemplate));
  const std::string key = "--set dstrain.data.chat_template=";
  const std::string saves = "--set dstrain.save_last=true ";
  folder.chats(saves + key + "own.jinja");
  const auto resumed = [&](const std::string& steps, const std::string& options) {
    const std::string text = folder.said(
        std::string(kProgram) + " --config t.json --model m --data chats.jsonl --resume out " +
        folder.token() + " " + saves + "--steps " + steps + " --resume_with_changes " + options);
    INFO(text);
    return text;
  };
  CHECK_FALSE(has(resumed("3", key + "own.jinja"), "dstrain.data.chat_template"));
  CHECK(has(resumed("4", key + "chatml"), "and is chatml"));
  CHECK(folder.is_there("out/chat_template.jinja"));
  CHECK(has(resumed("5", ""), "dstrain.data.chat_template was chatml and is that of the model"));
  CHECK_FALSE(folder.is_there("out/chat_template.jinja"));
  folder.write("out/chat_template.jinja", "mine");
  resumed("6", "");
  CHECK(folder.read("out/chat_template.jinja") == "mine");
}

TEST_CASE("what the keys of lines and a missing template mean is said before ranks start") {
  const ChatFolder folder;
  const auto refuses = [&](const std::string& options, const std::string& message) {
    for (const std::string ranks : {"1", "2"}) {
      const std::string text = folder.run("--num_gpus " + ranks + " " + options, 1);
      INFO(text);
      CHECK(has(only_error(text), message));
    }
  };
  refuses("--data chats.jsonl --set dstrain.data.loss_on=assistant",
          "chats.jsonl:2: the loss is to be on the assistant's tokens");
  const std::string skipped = folder.chats(
      "--set dstrain.data.loss_on=assistant --set dstrain.data.skip_invalid=true --steps 0");
  CHECK(has(skipped, "6 invalid lines were left out, the first is chats.jsonl:2: "));
  refuses("--set dstrain.data.loss_on=all", "dstrain.data.loss_on is of JSON lines");
  refuses("--set dstrain.data.chat_template=chatml", "dstrain.data.chat_template is of JSON lines");
  refuses("--data chats.jsonl --set dstrain.data.chat_template=none",
          "dstrain.data.chat_template none: there is no such file, and dstrain's own templates are "
          "chatml, llama3 and qwen");
  refuses("--data chats.jsonl --set dstrain.data.chat_template=m", "m is a directory");
  folder.write("bad.jinja", "a\n{% x %}");
  refuses("--data chats.jsonl --set dstrain.data.chat_template=bad.jinja",
          "bad.jinja: line 2: unexpected {% x %}");
  refuses("--set dstrain.data.skip_invalid=true", "dstrain.data.skip_invalid is of JSON lines");
  const json question = {{"role", "user"}, {"content", "a"}};
  folder.write("questions.jsonl", json{{"messages", json::array({question})}}.dump());
  refuses("--data questions.jsonl", "none of the tokens of questions.jsonl counts in the loss");
  folder.write("m/tokenizer_config.json", "{\"eos_token\": \"<|end_of_text|>\"}");
  refuses("--data chats.jsonl",
          "chats.jsonl:1: the line has messages, and the model's directory has no chat template");
  CHECK(has(folder.chats("", 1), "dstrain.data.chat_template of a run"));
  CHECK_FALSE(fs::exists(folder.root / "out/model.safetensors.tmp"));
}

}  // namespace
}  // namespace dstrain
