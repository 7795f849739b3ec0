// dstrain tokenize: the files that it writes, and what it refuses.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/launcher/support/run_folder.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTokenize = DSTRAIN_PROGRAM " tokenize --output out.bin --model m ";

json llama() {
  return json::parse(bytes_of_file(DSTRAIN_SOURCE_DIR "/tests/data/tokenizer/golden/llama3.json"));
}

void put_tokenizer(const RunFolder& folder, const json& tokenizer) {
  fs::create_directory(folder.root / "m");
  folder.write("m/tokenizer.json", tokenizer.dump());
}

template <class Number>
std::vector<Number> numbers_of(const std::string& bytes, size_t from = 0) {
  std::vector<Number> numbers((bytes.size() - from) / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data() + from, numbers.size() * sizeof(Number));
  return numbers;
}

TEST_CASE("tokenize writes uint16 without a header, and where documents begin") {
  const RunFolder folder;
  const json tokenizer = llama();
  put_tokenizer(folder, tokenizer);
  folder.write("a.txt", "a");
  folder.write("b.jsonl", "{\"text\": \"b\", \"x\": 1}\n\n{\"text\": \"a\"}\n");
  RunningProgram program = folder.start(std::string(kTokenize) + "--data a.txt b.jsonl 2>&1");
  CHECK(program.wait() == 0);
  CAPTURE(program.text());
  const auto id = [&](const char* token) {
    return tokenizer["model"]["vocab"][token].get<uint16_t>();
  };
  uint16_t begin = 0, end = 0;
  for (const json& token : tokenizer["added_tokens"]) {
    if (token["content"] == "<|begin_of_text|>") begin = token["id"];
    if (token["content"] == "<|end_of_text|>") end = token["id"];
  }
  CHECK(numbers_of<uint16_t>(folder.read("out.bin")) ==
        std::vector<uint16_t>{id("a"), begin, id("b"), end, begin, id("a"), end});
  CHECK(numbers_of<uint64_t>(folder.read("out.bin.documents")) ==
        std::vector<uint64_t>{0, 1, 4, 7});
  CHECK(program.wrote("out.bin: 7 tokens of 3 documents"));
  CHECK(program.wrote("members of lines that are not used are left out: x (1)"));
}

TEST_CASE("tokenize writes llm.c's header and uint32 where there are more than 65,536 ids") {
  const RunFolder folder;
  json tokenizer = llama();
  tokenizer["added_tokens"].push_back({{"id", 65535}, {"content", "<last>"}, {"special", true}});
  put_tokenizer(folder, tokenizer);
  folder.write("a.txt", "<last>a");
  CHECK(folder.start(std::string(kTokenize) + "--data a.txt").wait() == 0);
  CHECK(numbers_of<uint16_t>(folder.read("out.bin")).front() == 65535);
  tokenizer["added_tokens"].back()["id"] = 65536;
  put_tokenizer(folder, tokenizer);
  CHECK(folder.start(std::string(kTokenize) + "--data a.txt").wait() == 0);
  const std::string bytes = folder.read("out.bin");
  const auto header = numbers_of<int32_t>(bytes.substr(0, 1024));
  CHECK(std::vector<int32_t>(header.begin(), header.begin() + 4) ==
        std::vector<int32_t>{20240801, 7, 2, 0});
  CHECK(numbers_of<uint32_t>(bytes, 1024) ==
        std::vector<uint32_t>{65536, tokenizer["model"]["vocab"]["a"].get<uint32_t>()});
}

TEST_CASE("tokenize writes which tokens of conversations count in the loss") {
  const RunFolder folder;
  json tokenizer = llama();
  int id = 1000;
  for (const char* const token : {"<|start_header_id|>", "<|end_header_id|>"})
    tokenizer["added_tokens"].push_back({{"id", id++}, {"content", token}, {"special", true}});
  put_tokenizer(folder, tokenizer);
  folder.write(
      "c.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n"
      R"({"prompt": "a", "completion": "b"})"
      "\n");
  const auto run = [&](const std::string& words, int status, const std::string& message) {
    RunningProgram program = folder.start(kTokenize + words + " 2>&1");
    CHECK(program.wait() == status);
    CAPTURE(program.text());
    CHECK(program.text().find(message) != std::string::npos);
  };
  const auto targets = [&] { return fs::exists(folder.root / "out.bin.targets"); };
  run("--data c.jsonl", 1,
      "c.jsonl:1: the line has messages, and the model's directory has no chat template");
  CHECK(!targets());
  run("--data c.jsonl --chat_template llama3", 0, " tokens count in the loss");
  const auto ids = numbers_of<uint16_t>(folder.read("out.bin"));
  const std::string counts = folder.read("out.bin.targets");
  REQUIRE(counts.size() == ids.size());
  const auto of = [&](const char* token) {
    return tokenizer["model"]["vocab"][token].get<uint16_t>();
  };
  uint16_t turn = 0, end = 0;
  for (const json& token : tokenizer["added_tokens"]) {
    if (token["content"] == "<|eot_id|>") turn = token["id"];
    if (token["content"] == "<|end_of_text|>") end = token["id"];
  }
  std::vector<uint16_t> counted;
  for (size_t i = 0; i < ids.size(); ++i)
    if (counts[i] == 1) counted.push_back(ids[i]);
  CHECK(counted == std::vector<uint16_t>{of("b"), turn, of("b"), end});
  run("--data c.jsonl --chat_template llama3 --loss_on assistant", 1,
      "c.jsonl:2: the loss is to be on the assistant's");
  run("--data c.jsonl --chat_template none", 1, "--chat_template none: there is no such file");
  run("--data c.jsonl --loss_on some", 1, "--loss_on: expected assistant, completion or all");
  run("--data c.jsonl --skip_invalid", 0, "an invalid line was left out, the first is c.jsonl:1:");
  CHECK(targets());
  // Without tokens to ignore there is no file, and none of another run.
  run("--data c.jsonl --chat_template llama3 --loss_on all", 0, "2 documents");
  CHECK(!targets());
  fs::create_directories(folder.root / "m");
  folder.write("m/chat_template.jinja", "{{ 1 }}\n{% include 'x' %}");
  run("--data c.jsonl", 1,
      "c.jsonl:1: m/chat_template.jinja: line 2: {% include %} is not available");
  folder.write("d.jsonl", "{\"text\": \"a\"}\n");
  run("--data d.jsonl", 0, " tokens of 1 document, ");
  folder.write("e.jsonl", "{\"text\": \"\"}\n");
  run("--data e.jsonl --no_eos", 0, "out.bin: 1 token of 1 document, 13 bytes of text; ");
}

TEST_CASE("tokenize encodes a million messages with marks, and says why it cannot without") {
  const RunFolder folder;
  put_tokenizer(folder, llama());
  std::string line = R"({"messages": [{"role": "user", "content": "a"})";
  for (int i = 1; i < 1'000'000; ++i) line += R"(, {"role": "assistant", "content": "b"})";
  folder.write("c.jsonl", line + "]}\n");
  folder.write("plain.jinja",
               "{% for m in messages %}{{ m.role ~ m.content ~ '<|eot_id|>' }}{% endfor %}"
               "{% if add_generation_prompt %}assistant{% endif %}");
  const auto run = [&](const std::string& words, int status, const std::string& message) {
    RunningProgram program = folder.start(kTokenize + words + " 2>&1");
    CHECK(program.wait() == status);
    CAPTURE(program.text());
    CHECK(program.text().find(message) != std::string::npos);
  };
  run("--data c.jsonl --chat_template chatml", 0, " tokens of 1 document, ");
  run("--data c.jsonl --chat_template plain.jinja", 1,
      "c.jsonl:1: plain.jinja: line 1: rendering takes more than 100000000 steps");
}

TEST_CASE("tokenize warns of records in a file that is read as text") {
  const RunFolder folder;
  put_tokenizer(folder, llama());
  const auto run = [&](const std::string& name, const std::string& bytes) {
    folder.write(name, bytes);
    RunningProgram program = folder.start(kTokenize + ("--data " + name) + " 2>&1");
    CHECK(program.wait() == 0);
    return program.text();
  };
  const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  CHECK(run("a.json", lines)
            .find("the data file a.json is JSON, and training is on plain text: if each of its "
                  "lines is an object, name it a.jsonl; it is tokenized as text") !=
        std::string::npos);
  CHECK(run("a.txt", lines)
            .find("begins as JSON lines, and training is on plain text: name it "
                  "FILE.jsonl; it is tokenized") != std::string::npos);
  CHECK(run("b.txt", "{a}\nb").find("plain text") == std::string::npos);
  CHECK(run("b.jsonl", lines).find("plain text") == std::string::npos);
}

TEST_CASE("tokenize refuses wrong input with one error and leaves no file") {
  const RunFolder folder;
  put_tokenizer(folder, llama());
  folder.write("bad.jsonl", "{\"text\": \"b\"}\n{\"text\": 5}\n");
  folder.write("a.txt", "a");
  const auto refuses = [&](const std::string& words, const std::string& message) {
    RunningProgram program = folder.start(DSTRAIN_PROGRAM " tokenize " + words + " 2>&1");
    CHECK(program.wait() == 1);
    CAPTURE(program.text());
    CHECK(only_error(program.text()).find(message) != std::string::npos);
    CHECK(!fs::exists(folder.root / "out.bin"));
    CHECK(!fs::exists(folder.root / "out.bin.tmp"));
    CHECK(!fs::exists(folder.root / "out.bin.documents"));
  };
  refuses("--model m --data bad.jsonl --output out.bin",
          "bad.jsonl:2: \"text\": expected a string");
  refuses("--model m --data none.txt --output out.bin", "none.txt");
  refuses("--model none --data a.txt --output out.bin", "none: there is no tokenizer.json");
  refuses("--model m --data a.txt --output a.txt", "a.txt is to be read and written");
}

}  // namespace
}  // namespace dstrain
