// Runs that learn of pairs of answers: where their references come from, what goes on, and what is refused.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launcher/support/text_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kReferences = "out/cache/references.bin";
constexpr const char* kMeasured = "reference: the log-probabilities that the initial weights give";

// A folder with the lines pairs.jsonl, and runs of DPO on them.
struct PairFolder : TextFolder {
  PairFolder() {
    write("m/tokenizer_config.json", json{{"eos_token", "<|end_of_text|>"}}.dump());
    std::string lines;
    for (int i = 0; i < 12; ++i)
      lines += json{{"prompt", "the fox " + std::to_string(i)},
                    {"chosen", " jumps over it"},
                    {"rejected", " sleeps"}}
                   .dump() +
               "\n";
    write("pairs.jsonl", lines);
  }
  std::string learn(const std::string& options = "", int status = 0,
                    const std::string& data = "pairs.jsonl") const {
    return run("--data " + data +
                   " --set dstrain.data.seq_len=16 "
                   "--set dstrain.data.val_fraction=0.25 --set dstrain.objective.type=dpo " +
                   options,
               status);
  }
  json first_step() const {
    std::istringstream lines(read("out/metrics.jsonl"));
    std::string line;
    std::getline(lines, line);
    return json::parse(line);
  }
};

TEST_CASE("references are measured once, by the weights that a run begins with") {
  const PairFolder folder;
  const std::string first = folder.learn("--num_gpus 2");
  CHECK(has(first, std::string(kMeasured) + " to 12 pairs, 12 of them measured"));
  CHECK(folder.first_step()["loss"].get<double>() == Approx(std::log(2)).epsilon(1e-6));
  CHECK(folder.first_step()["tokens"] == 4);
  const std::string references = folder.read(kReferences);
  // Another run in the same place takes them; one of other weights does not.
  CHECK_FALSE(has(folder.learn("--num_gpus 1"), kMeasured));
  CHECK(folder.read(kReferences) == references);
  CHECK(has(folder.learn("--set dstrain.seed=5"), kMeasured));
  CHECK(folder.read(kReferences) != references);
  // What is damaged is measured again.
  folder.learn("--num_gpus 2");
  std::string damaged = references;
  damaged[damaged.size() - 3] ^= 1;
  folder.write(kReferences, damaged);
  CHECK(has(folder.learn("--num_gpus 2"), kMeasured));
  CHECK(folder.read(kReferences) == references);
  CHECK(folder.nothing_left());
}

TEST_CASE("a run of pairs that goes on has the bits of one that was not interrupted") {
  const PairFolder folder;
  folder.learn("--num_gpus 2 --steps 4 --set zero_optimization.stage=2");
  const std::string expected = folder.read("out/model.safetensors");
  folder.learn("--num_gpus 2 --steps 2 --save_interval 1 --set zero_optimization.stage=2");
  fs::copy(folder.root / "out", folder.root / "kept", fs::copy_options::recursive);
  const std::string resumed =
      folder.said(std::string(kProgram) + " --resume out --num_gpus 2 --steps 4");
  CHECK_FALSE(has(resumed, kMeasured));
  CHECK(folder.read("out/model.safetensors") == expected);
  // In another folder the references of the run that is resumed are taken along.
  folder.said(std::string(kProgram) + " --resume kept --num_gpus 2 --steps 4 --output other");
  CHECK(folder.read("other/model.safetensors") == expected);
  CHECK(folder.read("other/cache/references.bin") == folder.read(kReferences));
  folder.said(
      std::string(kProgram) + " --resume kept --num_gpus 2 --steps 4 --output layout " +
      "--set zero_optimization.stage=3 --set zero_optimization.offload_optimizer.device=cpu");
  CHECK(folder.read("layout/model.safetensors") == expected);
  fs::remove(folder.root / "kept/cache/references.bin");
  const std::string said =
      folder.said(std::string(kProgram) + " --resume kept --num_gpus 2 --steps 4 --output more", 1);
  CHECK(has(only_error(said), "kept/cache/references.bin has not the log-probabilities"));
  CHECK(folder.nothing_left());
}

// Where the signal comes does not matter: before the pass, in it, or behind it.
TEST_CASE("a run that is stopped while references are measured goes on to the same bits") {
  const PairFolder folder;
  std::string lines;
  for (int i = 0; i < 4000; ++i)
    lines += json{{"prompt", "the fox " + std::to_string(i)},
                  {"chosen", " jumps over it"},
                  {"rejected", " sleeps"}}
                 .dump() +
             "\n";
  folder.write("many.jsonl", lines);
  folder.learn("--num_gpus 2", 0, "many.jsonl");
  const std::string expected = folder.read("out/model.safetensors"),
                    references = folder.read(kReferences);
  for (const int signal : {SIGTERM, SIGKILL}) {
    CAPTURE(signal);
    fs::remove_all(folder.root / "out");
    RunningProgram program = folder.start(
        folder.command("--num_gpus 2 --data many.jsonl --set dstrain.data.seq_len=16 --set "
                       "dstrain.data.val_fraction=0.25 --set dstrain.objective.type=dpo"),
        kAsRoot);
    REQUIRE(wait_until([&] { return program.wrote("the run sees"); }));
    const std::vector<pid_t> ranks = ranks_of(program.pid());
    ::kill(signal == SIGTERM || ranks.empty() ? program.pid() : ranks.back(), signal);
    program.wait();
    CHECK(folder.learn("--num_gpus 2", 0, "many.jsonl").find("results in") != std::string::npos);
    CHECK(folder.read(kReferences) == references);
    CHECK(folder.read("out/model.safetensors") == expected);
  }
  CHECK(folder.nothing_left());
}

TEST_CASE("rated answers are learned, and go on, with the same bits") {
  const PairFolder folder;
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines += json{{"prompt", "the fox " + std::to_string(i)},
                  {"completion", i % 3 == 0 ? " sleeps" : " jumps over it"},
                  {"label", i % 3 != 0}}
                 .dump() +
             "\n";
  folder.write("rated.jsonl", lines);
  const std::string kto = "--set dstrain.objective.type=kto --num_gpus 2 ";
  const std::string first = folder.learn(kto + "--steps 4", 0, "rated.jsonl");
  CHECK(has(first, std::string(kMeasured) + " to 12 samples, 12 of them measured"));
  CHECK(folder.first_step()["loss"].get<double>() == Approx(0.5).epsilon(1e-6));
  CHECK(folder.first_step()["kl"] == 0);
  int margins = 0;
  std::istringstream steps(folder.read("out/metrics.jsonl"));
  for (std::string line; std::getline(steps, line);) {
    const json step = json::parse(line);
    if (!step.contains("rewards/margins") || step["rewards/margins"].is_null()) continue;
    ++margins;
    CHECK(step["rewards/margins"].get<double>() ==
          Approx(step["rewards/chosen"].get<double>() - step["rewards/rejected"].get<double>())
              .margin(1e-6));
  }
  CHECK(margins > 0);
  const std::string expected = folder.read("out/model.safetensors");
  folder.learn(kto + "--steps 2 --save_interval 1", 0, "rated.jsonl");
  const std::string resumed =
      folder.said(std::string(kProgram) + " --resume out --num_gpus 2 --steps 4");
  CHECK_FALSE(has(resumed, kMeasured));
  CHECK(folder.read("out/model.safetensors") == expected);
  folder.learn(kto + "--steps 2 --save_interval 1", 0, "rated.jsonl");
  folder.said(std::string(kProgram) + " --resume out --num_gpus 2 --steps 4 --output layout " +
              "--set zero_optimization.stage=3 --set dstrain.reduce=boundary "
              "--set zero_optimization.offload_optimizer.device=cpu");
  CHECK(folder.read("layout/model.safetensors") == expected);
  // Lines that were tokenized as rated ones are not those of another objective.
  CHECK(has(folder.learn("", 1, "rated.jsonl"), "rated.jsonl:1: the line has no \"chosen\""));
  CHECK(json::parse(folder.said(std::string(kProgram) +
                                    " verify --json --config t.json --model m --data rated.jsonl "
                                    "--set dstrain.data.seq_len=16 --set "
                                    "zero_optimization.stage=3 " +
                                    kto,
                                0, " 2>err"))["equal"] == true);
  CHECK(folder.nothing_left());
}

TEST_CASE("a model with a score is trained, goes on, is a beginning, and has no text") {
  const PairFolder folder;
  const std::string reward = "--set dstrain.objective.type=reward --num_gpus 2 ";
  folder.learn(reward + "--steps 4");
  const std::string expected = folder.read("out/model.safetensors");
  CHECK_FALSE(fs::exists(folder.root / kReferences));
  const json config = json::parse(folder.read("out/config.json"));
  CHECK(config["architectures"] == json::array({"LlamaForSequenceClassification"}));
  CHECK(config["id2label"] == json{{"0", "LABEL_0"}});
  CHECK(has(expected, "score.weight"));
  CHECK_FALSE(has(expected, "lm_head"));
  folder.learn(reward + "--steps 2 --save_interval 1");
  folder.said(std::string(kProgram) + " --resume out --num_gpus 2 --steps 4");
  CHECK(folder.read("out/model.safetensors") == expected);
  folder.learn(reward + "--steps 4 --set zero_optimization.stage=3 --set dstrain.reduce=boundary");
  const std::string third = folder.read("out/model.safetensors");
  folder.learn(reward + "--steps 4 --set zero_optimization.stage=0 --set dstrain.reduce=boundary");
  CHECK(folder.read("out/model.safetensors") == third);
  // The head of a folder that has one is the beginning, and is not drawn.
  fs::copy(folder.root / "out", folder.root / "scored", fs::copy_options::recursive);
  const auto begins = [&](const std::string& options) {
    return folder.said(
        std::string(kProgram) + " --config t.json --data pairs.jsonl --model scored " +
            "--set dstrain.data.seq_len=16 --overwrite --steps 0 --output again " + options,
        options.find("reward") == options.npos ? 1 : 0);
  };
  begins(reward);
  CHECK(folder.read("again/model.safetensors") == third);
  CHECK(has(only_error(begins("")), "dstrain.objective.type \"reward\" trains it"));
  for (const std::string words :
       {"generate --run out --prompt a", "eval --run out --data pairs.jsonl"})
    CHECK(has(only_error(folder.said(std::string(kProgram) + " " + words, 1)),
              "gives answers a score, and has no text"));
  CHECK(has(only_error(folder.said(std::string(kProgram) + " export out --format gguf", 1)),
            "gives a score, which llama.cpp"));
  CHECK(json::parse(folder.said(std::string(kProgram) +
                                    " verify --json --config t.json --model m --data pairs.jsonl "
                                    "--set dstrain.data.seq_len=16 --set "
                                    "zero_optimization.stage=3 " +
                                    reward,
                                0, " 2>err"))["equal"] == true);
  // Adapters train the head as a whole, as PEFT's for sequence classification do.
  folder.learn(reward + "--set dstrain.lora.r=2 --steps 2");
  const json adapter = json::parse(folder.read("out/adapter_config.json"));
  CHECK(adapter["task_type"] == "SEQ_CLS");
  CHECK(adapter["modules_to_save"] == json::array({"score"}));
  const std::string adapters = folder.read("out/adapter_model.safetensors");
  CHECK(has(adapters, "base_model.model.score.weight"));
  folder.learn(reward +
               "--set dstrain.lora.r=2 --steps 2 --set "
               "zero_optimization.stage=3 --set dstrain.reduce=boundary");
  const std::string sharded = folder.read("out/adapter_model.safetensors");
  folder.learn(reward +
               "--set dstrain.lora.r=2 --steps 2 --save_interval 2 --set "
               "zero_optimization.stage=0 --set dstrain.reduce=boundary");
  CHECK(folder.read("out/adapter_model.safetensors") == sharded);
  folder.said(std::string(kProgram) + " export out/checkpoints/step_2 --merge --output merged");
  CHECK(has(folder.read("merged/model.safetensors"), "score.weight"));
  CHECK(folder.nothing_left());
}

// Lines whose answers have different lengths.
std::string odd_pairs() {
  std::string lines;
  for (int i = 0; i < 13; ++i) {
    const std::string more = i % 3 == 0 ? " and over all the others" : i % 3 == 1 ? " again" : "";
    lines += json{{"prompt", "the fox " + std::to_string(i)},
                  {"chosen", " jumps over it" + (i % 2 == 0 ? more : "")},
                  {"rejected", " sleeps" + (i % 2 == 0 ? "" : more)}}
                 .dump() +
             "\n";
  }
  return lines;
}

TEST_CASE("packed pairs are learned alike at every stage and by any ranks, and go on") {
  const PairFolder folder;
  folder.write("odd.jsonl", odd_pairs());
  const auto learn = [&](const std::string& options, int steps = 4) {
    const std::string said =
        folder.learn("--set dstrain.data.packing=pack --set dstrain.data.seq_len=53 --steps " +
                         std::to_string(steps) + " " + options,
                     0, "odd.jsonl");
    return std::pair(said, folder.read("out/model.safetensors"));
  };
  for (const std::string type : {"dpo", "orpo", "reward"}) {
    CAPTURE(type);
    const std::string of_type =
        "--set dstrain.objective.type=" + type + " --set dstrain.reduce=boundary ";
    const auto [said, expected] = learn(of_type + "--num_gpus 2 --set zero_optimization.stage=0");
    CHECK(has(said, " pairs in "));
    CHECK(has(said, type == "dpo" ? kMeasured : "the run sees"));
    // The pairs of a batch, of which its four samples have one or more each.
    const json step = folder.first_step();
    CHECK(step["tokens"].get<int>() > 4);
    if (type == "dpo") CHECK(step["loss"].get<double>() == Approx(std::log(2)).epsilon(1e-6));
    for (const std::string options : {"--num_gpus 2 --set zero_optimization.stage=2",
                                      "--num_gpus 2 --set zero_optimization.stage=3",
                                      "--num_gpus 2 --set zero_optimization.stage=3 "
                                      "--set zero_optimization.offload_optimizer.device=cpu "
                                      "--set activation_checkpointing.number_checkpoints=1"}) {
      CAPTURE(options);
      CHECK(learn(of_type + options).second == expected);
    }
    CHECK(learn(of_type + "--num_gpus 2 --set pipeline.stages=2").second ==
          learn(of_type + "--num_gpus 1").second);
    learn(of_type + "--num_gpus 2 --save_interval 2 --set zero_optimization.stage=2", 2);
    const std::string resumed =
        folder.said(std::string(kProgram) + " --resume out --num_gpus 2 --steps 4");
    CHECK_FALSE(has(resumed, kMeasured));
    CHECK(folder.read("out/model.safetensors") == expected);
    CHECK(json::parse(folder.said(
              std::string(kProgram) +
                  " verify --json --config t.json --model m --data odd.jsonl "
                  "--set dstrain.data.packing=pack --set dstrain.data.seq_len=53 --set "
                  "zero_optimization.stage=3 --num_gpus 2 --set dstrain.objective.type=" +
                  type,
              0, " 2>err"))["equal"] == true);
  }
  CHECK(folder.nothing_left());
}

TEST_CASE("adapters learn of pairs, and begin where their model is") {
  const PairFolder folder;
  folder.learn("--set dstrain.lora.r=2 --num_gpus 2");
  CHECK(folder.first_step()["loss"].get<double>() == Approx(std::log(2)).epsilon(1e-6));
  const std::string weights = folder.read("out/adapter_model.safetensors");
  folder.learn(
      "--set dstrain.lora.r=2 --num_gpus 2 --set zero_optimization.stage=3 "
      "--set dstrain.reduce=boundary");
  CHECK(folder.read("out/adapter_model.safetensors") == weights);
}

TEST_CASE("verify, plan and check know runs of pairs") {
  const PairFolder folder;
  const std::string words =
      " --config t.json --model m --data pairs.jsonl "
      "--set dstrain.data.seq_len=16 --set dstrain.objective.type=dpo ";
  const auto command = [&](const std::string& name, const std::string& options) {
    return folder.said(std::string(kProgram) + " " + name + words + options);
  };
  CHECK(json::parse(folder.said(std::string(kProgram) + " verify --json" + words +
                                    "--num_gpus 2 --set zero_optimization.stage=3",
                                0, " 2>err"))["equal"] == true);
  CHECK(has(command("plan", "--num_gpus 2"), "log_probs"));
  CHECK_FALSE(command("check", "").empty());
}

TEST_CASE("what pairs cannot be of is one error before anything is written") {
  const PairFolder folder;
  const auto refused = [&folder](const std::string& options, const std::string& message) {
    CAPTURE(options);
    const std::string said = folder.learn(options, 1);
    CHECK(has(said, message));
    CHECK_FALSE(fs::exists(folder.root / "out"));
  };
  refused("--set dstrain.data.packing=none", "use \"pad\" or \"pack\", or remove the key");
  refused("--set dstrain.objective.type=kto --set dstrain.data.packing=pack",
          "its loss compares the samples of a micro-batch: use \"pad\", or remove the key");
  refused("--set dstrain.objective.simpo_gamma=1", "dpo has no such setting");
  refused("--set dstrain.objective.loss_type=hinge --set dstrain.objective.label_smoothing=0.1",
          "the loss hinge has no such setting");
  refused("--set dstrain.label_smoothing=0.1", "is of the loss of next tokens");
  refused("--num_gpus 2 --set tensor_parallel.autotp_size=2",
          "pairs of answers do not run with tensor_parallel.autotp_size above 1 yet");
  refused("--set dstrain.objective.type=grpo",
          "expected one of \"next_token\", \"dpo\", \"simpo\", \"orpo\", \"kto\", \"reward\", "
          "\"distill\"");
  CHECK(has(folder.learn("", 1, "text.txt"),
            "learns of pairs of answers, \"chosen\" and \"rejected\", and the data file text.txt "
            "has none"));
  CHECK_FALSE(fs::exists(folder.root / "out"));
  folder.write("lines.jsonl", json_line("a text"));
  CHECK(has(folder.learn("", 1, "lines.jsonl"),
            "lines.jsonl:1: the line has no \"chosen\" and \"rejected\""));
  CHECK_FALSE(fs::exists(folder.root / "out"));
  CHECK(has(folder.learn("--set dstrain.objective.type=kto", 1),
            "pairs.jsonl:1: the line has no \"prompt\" and \"completion\" with a \"label\""));
  CHECK(has(folder.run("--data pairs.jsonl", 1),
            "pairs.jsonl:1: the line has \"chosen\" and \"rejected\", of which only a run"));
}

}  // namespace
}  // namespace dstrain
