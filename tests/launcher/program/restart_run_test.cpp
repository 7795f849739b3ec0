// --max_restarts with real processes: whatever kills a run, its results are those of one that nothing
// happened to.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using nlohmann::json;

void kill_a_rank(const RunningProgram& program) {
  const std::vector<pid_t> ranks = ranks_of(program.pid());
  REQUIRE_FALSE(ranks.empty());
  ::kill(ranks.back(), SIGKILL);
}

// What must not depend on anything but the run's input: metrics.jsonl without times.
std::vector<json> history_of(const RunFolder& folder) {
  std::vector<json> lines;
  std::istringstream text(folder.read("out/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    lines.push_back(json::parse(line));
    for (const char* time : {"samples_per_second", "step_ms"}) lines.back().erase(time);
  }
  return lines;
}

TEST_CASE("a run with a killed rank goes on from its newest checkpoint to the same weights") {
  const auto ranks = GENERATE("1", "2");
  const std::string options =
      std::string("--steps 1500 --save_interval 100 --set steps_per_print=100 --num_gpus ") + ranks;
  const RunFolder folder, undisturbed;
  RunningProgram program = folder.train(options + " --max_restarts 3");
  REQUIRE(wait_until([&] { return program.wrote("step=500 "); }));
  kill_a_rank(program);
  REQUIRE(wait_until([&] { return program.wrote("restart 1 of 3"); }));
  REQUIRE(wait_until([&] { return program.wrote("step=1100 "); }));
  kill_a_rank(program);
  CHECK(program.wait() == 0);
  const std::string text = program.text();
  CAPTURE(text);
  CHECK(std::regex_search(
      text, std::regex("\nwarning: rank [01] \\(pid [0-9]+\\) was killed by signal 9 \\(Killed\\) "
                       ".*\nwarning: restart 1 of 3 in 1 s, from its checkpoint of step "
                       "[0-9]+00\n")));
  CHECK(text.find("restart 2 of 3 in 1 s, from its checkpoint of step 1") != std::string::npos);
  CHECK(text.find("dstrain: error") == std::string::npos);
  CHECK(folder.nothing_left());

  CHECK(undisturbed.train(options).wait() == 0);
  CHECK(folder.read("out/model.safetensors") == undisturbed.read("out/model.safetensors"));
  CHECK(history_of(folder) == history_of(undisturbed));
}

// Rows of experts are on their way when it is killed.
TEST_CASE(
    "a run whose ranks divide experts goes on after a kill, to the weights of one where they do "
    "not") {
  const std::string options =
      "--steps 400 --save_interval 40 --set steps_per_print=40 --num_gpus 2 --data text.txt --set ";
  const RunFolder folder, undivided;
  for (const RunFolder* const of : {&folder, &undivided})
    of->write("c.json", R"({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1},
      "expert_parallel": {"enabled": true, "autoep_size": 2}, "optimizer": {"type": "AdamW"},
      "dstrain": {"model": {"type": "mixtral", "num_hidden_layers": 2, "hidden_size": 16,
        "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2,
        "num_local_experts": 4, "max_position_embeddings": 8}, "eval_samples": 2}})");
  RunningProgram program = folder.train(options + "dstrain.keep_last=2 --max_restarts 1");
  REQUIRE(wait_until([&] { return program.wrote("step=120 "); }));
  kill_a_rank(program);
  CHECK(program.wait() == 0);
  CAPTURE(program.text());
  CHECK(program.wrote("restart 1 of 1 in 1 s, from its checkpoint of step "));
  CHECK(undivided.train(options + "expert_parallel.enabled=false").wait() == 0);
  CHECK(folder.read("out/model.safetensors") == undivided.read("out/model.safetensors"));
  CHECK(folder.nothing_left());
}

TEST_CASE("a restart passes over a newest checkpoint that is damaged") {
  const std::string options = "--steps 1500 --save_interval 100 --set steps_per_print=100";
  const RunFolder folder, undisturbed;
  RunningProgram program = folder.train(options + " --max_restarts 1");
  REQUIRE(wait_until([&] { return program.wrote("step=500 "); }));
  kill_a_rank(program);
  REQUIRE(wait_until([&] { return program.wrote("restart 1 of 1"); }));
  // The sizes stay, so that only the ranks find it.
  const std::regex step("from its checkpoint of step ([0-9]+)\n");
  std::smatch found;
  const std::string text = program.text();
  REQUIRE(std::regex_search(text, found, step));
  const std::string name = "step_" + found[1].str();
  std::fstream file(folder.path("out/checkpoints/" + name + "/rank_00000.safetensors"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-2000, std::ios::end);
  const int old = file.get();
  file.seekp(-2000, std::ios::end);
  file.put(static_cast<char>(old ^ 1));
  file.close();
  CHECK(program.wait() == 0);
  CAPTURE(program.text());
  CHECK(program.wrote("--resume passes over " + name + ": "));
  CHECK(undisturbed.train(options).wait() == 0);
  CHECK(folder.read("out/model.safetensors") == undisturbed.read("out/model.safetensors"));
}

TEST_CASE("before the first checkpoint a restart begins from the beginning") {
  const std::string options = "--steps 600 --num_gpus 2 --set steps_per_print=100";
  const RunFolder folder, undisturbed;
  RunningProgram program = folder.train(options + " --max_restarts 1");
  CHECK(wait_until([&] { return program.wrote("step=200 "); }));
  kill_a_rank(program);
  CHECK(program.wait() == 0);
  CHECK(
      program.wrote("warning: --max_restarts without --save_interval: every restart begins at step "
                    "1\n"));
  CHECK(
      program.wrote("warning: restart 1 of 1 in 1 s, from where it began, as there is no "
                    "checkpoint of this run yet\n"));
  CHECK(undisturbed.train(options).wait() == 0);
  CHECK(folder.read("out/model.safetensors") == undisturbed.read("out/model.safetensors"));
  CHECK(history_of(folder) == history_of(undisturbed));
}

TEST_CASE("a run that began with --init_weights is restarted from its checkpoint") {
  const RunFolder folder, undisturbed;
  REQUIRE(folder.start(DSTRAIN_PROGRAM " --config c.json --output first --steps 0").wait() == 0);
  const std::string options =
      "--steps 600 --save_interval 100 --set steps_per_print=100 --seed 2 "
      "--num_gpus 2 --init_weights " +
      folder.path("first/model.safetensors");
  RunningProgram program = folder.train(options + " --max_restarts 1");
  REQUIRE(wait_until([&] { return program.wrote("step=300 "); }));
  kill_a_rank(program);
  CHECK(program.wait() == 0);
  CHECK(program.wrote("restart 1 of 1 in 1 s, from its checkpoint of step "));
  CHECK(undisturbed.train(options).wait() == 0);
  CHECK(folder.read("out/model.safetensors") == undisturbed.read("out/model.safetensors"));
}

TEST_CASE("a run of an exported model with a killed rank goes on to the same weights") {
  const std::string graph = DSTRAIN_SOURCE_DIR "/tests/golden/exported/tokens/";
  const std::string options =
      "--model " + graph + "model.pt2 --data " + graph +
      "data.safetensors --set dstrain.data.format=arrays --set dstrain.data.val_fraction=0 "
      "--set dstrain.eval_interval=0 --set train_micro_batch_size_per_gpu=2 --steps 30000 "
      "--save_interval 2000 --set steps_per_print=1000 --num_gpus 2";
  const RunFolder folder, undisturbed;
  RunningProgram program = folder.train(options + " --max_restarts 1");
  REQUIRE(wait_until([&] { return program.wrote("step=5000 "); }));
  kill_a_rank(program);
  CHECK(program.wait() == 0);
  CAPTURE(program.text());
  CHECK(program.wrote("restart 1 of 1 in 1 s, from its checkpoint of step "));
  CHECK(undisturbed.train(options).wait() == 0);
  CHECK(folder.read("out/model.safetensors") == undisturbed.read("out/model.safetensors"));
  CHECK(history_of(folder) == history_of(undisturbed));
}

TEST_CASE("a failure that comes again is reported once the restarts are used up") {
  const RunFolder folder;
  RunningProgram program =
      folder.start("/bin/sh -c 'ulimit -f 4096; exec " DSTRAIN_PROGRAM " --config c.json " +
                   folder.token() + " --steps 1 --set dstrain.model.n_embd=256 --max_restarts 1'");
  CHECK(program.wait() == 2);
  CHECK(program.wrote("warning: restart 1 of 1 in 1 s"));
  CHECK(only_error(program.text()).find("File too large") != std::string::npos);
}

TEST_CASE("a signal of the user's ends a run that may be restarted") {
  const RunFolder folder;
  RunningProgram program = folder.train("--steps 100000000 --num_gpus 2 --max_restarts 3");
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  ::kill(program.pid(), SIGTERM);
  CHECK(program.wait() == 143);
  CHECK_FALSE(program.wrote("restart 1"));
  CHECK(folder.nothing_left());
}

TEST_CASE("a signal of the user's ends the pause before a restart") {
  const RunFolder folder;
  RunningProgram program =
      folder.train("--steps 100000000 --num_gpus 2 --max_restarts 3 --save_pid");
  REQUIRE(wait_until([&] { return program.wrote("step=3 "); }));
  kill_a_rank(program);
  REQUIRE(wait_until([&] { return program.wrote("restart 1"); }));
  ::kill(program.pid(), SIGINT);
  CHECK(program.wait() == 130);
  CHECK_FALSE(std::filesystem::exists("/tmp/" + std::to_string(program.pid()) + ".deepspeed"));
  CHECK(folder.nothing_left());
}

}  // namespace
}  // namespace dstrain
