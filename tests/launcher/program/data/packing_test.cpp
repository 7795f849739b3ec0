// Runs on documents that are packed into samples, or padded, from the shell's side.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launcher/support/run_folder.h"
#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

using nlohmann::json;

// Writes a token file of documents of 2 to 9 tokens, and where they begin.
void write_documents(const RunFolder& folder, const std::string& name, int documents) {
  std::string ids, begins;
  const auto add = [](std::string& to, const auto& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  uint64_t tokens = 0;
  for (int d = 0; d < documents; ++d) {
    add(begins, tokens);
    for (int t = 0; t < 2 + d * 5 % 8; ++t, ++tokens)
      add(ids, static_cast<uint16_t>((d * 7 + t * 3) % 40));
  }
  add(begins, tokens);
  folder.write(name, ids);
  folder.write(name + ".documents", begins);
}

// Returns words of which those that set a key have --set in front.
std::string words_of(const std::string& options) {
  std::istringstream in(options);
  std::string words;
  for (std::string word; in >> word;)
    words +=
        (word.find('=') != std::string::npos && !word.starts_with("--") ? " --set " : " ") + word;
  return words;
}

std::string ran(const RunFolder& folder, const std::string& options, int status = 0) {
  RunningProgram program = folder.train(
      words_of("--overwrite --data a.bin dstrain.model.vocab_size=40 dstrain.model.dropout=0 " +
               options) +
      " 2>&1");
  const int ended = program.wait();
  CAPTURE(options, program.text());
  REQUIRE(ended == status);
  return program.text();
}

json last_metrics(const RunFolder& folder) {
  std::istringstream lines(folder.read("out/metrics.jsonl"));
  json last;
  for (std::string line; std::getline(lines, line);)
    if (json object = json::parse(line); object.contains("loss")) last = object;
  return last;
}

TEST_CASE("packed documents train on 1, 2 and 4 ranks with the same losses, at every stage") {
  const RunFolder folder;
  write_documents(folder, "a.bin", 90);
  for (const std::string packing : {"pack", "pad"}) {
    std::string first;
    for (const std::string ranks : {"1", "2", "4"})
      for (const std::string stage : {"0", "3"}) {
        const std::string text =
            ran(folder, "dstrain.data.packing=" + packing + " zero_optimization.stage=" + stage +
                            " --num_gpus " + ranks);
        CHECK(text.find(packing == "pack" ? "documents in 5" : "documents in 8") !=
              std::string::npos);
        CHECK(text.find(" % full") != std::string::npos);
        CHECK(text.find("longer ones cut to it") != std::string::npos);
        const std::string loss =
            std::to_string(double(last_metrics(folder)["loss"]));  // six digits
        if (first.empty()) first = loss;
        CHECK(loss == first);
      }
  }
}

TEST_CASE("a step of all documents packed has the loss of all documents padded") {
  const RunFolder folder;
  write_documents(folder, "a.bin", 24);
  const auto loss_of = [&](const std::string& packing, int samples) {
    const std::string text =
        ran(folder, "dstrain.data.packing=" + packing +
                        " dstrain.data.val_fraction=0 dstrain.eval_interval=0 dstrain.steps=1 "
                        "dstrain.data.order=sequential train_batch_size=" +
                        std::to_string(samples));
    CAPTURE(text);
    REQUIRE(text.find("in " + std::to_string(samples) + " training samples of 8") !=
            std::string::npos);
    return double(last_metrics(folder)["loss"]);
  };
  // 3 documents of each length from 2 to 9, of which the longest is cut: 129 tokens.
  const double packed = loss_of("pack", 17), padded = loss_of("pad", 24);
  CHECK(std::abs(packed - padded) < 1e-6 * padded);
}

TEST_CASE("a resumed run keeps its packing, and verify and plan know it") {
  const RunFolder folder;
  write_documents(folder, "a.bin", 60);
  ran(folder, "dstrain.data.packing=pack --save_interval 4");
  const std::string more =
      "--config c.json --data a.bin dstrain.model.vocab_size=40 "
      "dstrain.model.dropout=0 ";
  const auto said = [&](const std::string& words, int status) {
    RunningProgram program = folder.start(std::string(DSTRAIN_PROGRAM) + words_of(words) + " 2>&1");
    CHECK(program.wait() == status);
    return program.text();
  };
  CHECK(
      said(more + "--resume out --steps 6", 1).find("dstrain.data.packing was pack and is none") !=
      std::string::npos);
  CHECK(said(more + "dstrain.data.packing=pack --resume out --steps 6", 0)
            .find("resumes after step 4") != std::string::npos);
  CHECK(said("verify " + more + "dstrain.data.packing=pack --num_gpus 2", 0).find("equal") !=
        std::string::npos);
  const std::string plan = said("plan " + more + "dstrain.data.packing=pack", 0);
  CHECK(plan.find("d_att, qkv, att, lse, documents") != std::string::npos);
  CHECK(said("plan " + more, 0).find("documents") == std::string::npos);
  const std::string text = said("--config c.json --output o dstrain.data.packing=pack", 1);
  CHECK(text.find("wants token files, and text.txt holds text") != std::string::npos);
}

// A folder with conversations and completions of different lengths, chats.jsonl, of which lines with even numbers have
// no answer; and a model with a chat template.
struct PackedChats : TextFolder {
  PackedChats() {
    write("m/tokenizer_config.json",
          json{{"eos_token", "<|end_of_text|>"},
               {"chat_template",
                "{% for m in messages %}{{ m.role }}: {{ m.content }}<|eot_id|>{% endfor %}"}}
              .dump());
    write("chats.jsonl", lines(12));
  }
  static std::string lines(int count) {
    const std::vector<std::string> words{"the", " quick", " brown", " fox", " jumps", " over"};
    std::string all;
    for (int i = 0; i < count; ++i) {
      std::string answer;
      for (int w = 0; w <= 1 + i * 3 % 5; ++w) answer += words[static_cast<size_t>(w + i) % 6];
      json messages = json::array({{{"role", "user"}, {"content", "the fox?"}}});
      if (i % 2 == 1) messages.push_back({{"role", "assistant"}, {"content", answer}});
      all += json{{"messages", messages}}.dump() + "\n";
      all += json{{"prompt", "the lazy"}, {"completion", answer}}.dump() + "\n";
    }
    return all;
  }
  std::string packed(const std::string& options, int status = 0, int length = 64) const {
    return run("--overwrite --data chats.jsonl" +
                   words_of(" dstrain.data.seq_len=" + std::to_string(length) + " " + options),
               status);
  }
  // Returns the metrics of the only step, which takes all samples; their number is in front of " training samples".
  json step_of_all(const std::string& packing, const std::string& options = "") const {
    const std::string all =
        "dstrain.data.packing=" + packing + " dstrain.data.val_fraction=0 " + options;
    const std::string text = packed(all + " --steps 0");
    const size_t end = text.find(" training samples of 64");
    REQUIRE(end != std::string::npos);
    const size_t begin = text.rfind(' ', end - 1) + 1;
    packed(all + " dstrain.data.order=sequential --steps 1 train_batch_size=" +
           text.substr(begin, end - begin));
    return last_metrics(*this);
  }
};

TEST_CASE("packed conversations train on the answers' tokens alone, as padded ones do") {
  const PackedChats folder;
  const std::string text =
      folder.packed("dstrain.data.packing=pack dstrain.data.val_fraction=0 --steps 0");
  INFO(text);
  CHECK(has(text, "18 documents in "));
  CHECK(has(text, " 6 documents without a target in the first 64 tokens left out"));
  const json packed = folder.step_of_all("pack"), padded = folder.step_of_all("pad");
  const std::string targets = folder.read("out/cache/chats.jsonl.bin.targets");
  CHECK(packed["tokens"] == std::count(targets.begin(), targets.end(), '\1'));
  CHECK(padded["tokens"] == packed["tokens"]);
  CHECK(std::abs(double(packed["loss"]) - double(padded["loss"])) < 1e-5);
  // All tokens of a document but its first.
  const json all = folder.step_of_all("pack", "dstrain.data.loss_on=all");
  CHECK(all["tokens"] > packed["tokens"]);
  CHECK(std::abs(double(all["loss"]) - double(packed["loss"])) > 1e-5);
}

TEST_CASE("packed conversations have the same losses on 1, 2 and 4 ranks, in validation too") {
  const PackedChats folder;
  folder.write("others.jsonl", PackedChats::lines(5));
  for (const std::string packing : {"pack", "pad"}) {
    std::string first;
    for (const std::string ranks : {"1", "2", "4"}) {
      folder.packed("dstrain.data.packing=" + packing +
                    " dstrain.data.val_path=others.jsonl --num_gpus " + ranks);
      std::string losses;
      std::istringstream lines(folder.read("out/metrics.jsonl"));
      for (std::string line; std::getline(lines, line);) {
        const json object = json::parse(line);
        for (const std::string key : {"loss", "val_loss"})
          if (object.contains(key)) losses += key + std::to_string(double(object[key])) + " ";
      }
      CHECK(has(losses, "val_loss"));
      if (first.empty()) first = losses;
      CHECK(losses == first);
    }
  }
}

TEST_CASE("packed conversations without any answer are an error") {
  const PackedChats folder;
  folder.write("val.jsonl", json{{"messages", {{{"role", "user"}, {"content", "a"}}}}}.dump());
  CHECK(has(folder.packed("dstrain.data.packing=pack dstrain.data.val_path=val.jsonl", 1),
            "none of the tokens of val.jsonl counts in the loss"));
  // Samples so short that all answers are behind the cut.
  CHECK(has(folder.packed("dstrain.data.packing=pack", 1, 2),
            "the training data have no document with a token that counts in the loss among its "
            "first 2, by FILE.targets: chats.jsonl.bin: give a larger dstrain.data.seq_len"));
}

TEST_CASE("where documents begin in a tokenized text is written again if it is gone") {
  const PackedChats folder;
  CHECK(has(folder.packed("dstrain.data.packing=pack --steps 0"), "tokenized into"));
  std::filesystem::remove(folder.root / "out/cache/chats.jsonl.bin.documents");
  CHECK(has(folder.packed("dstrain.data.packing=pack --steps 0"), "tokenized into"));
  CHECK(has(folder.packed("dstrain.data.packing=pack --steps 0"), "tokenized before"));
}

}  // namespace
}  // namespace dstrain
