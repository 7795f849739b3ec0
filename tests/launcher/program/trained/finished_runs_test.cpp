// Where a run writes: a finished run is never replaced unasked, and a run without --output finds a folder of its own.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

const std::string kProgram = DSTRAIN_PROGRAM;
const std::string kMpirun = "mpirun --oversubscribe --bind-to none -np 2 " + kProgram;
const Environment kMpi = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                          {"OMP_NUM_THREADS", "1"}};

// Returns what a run with c.json said, which must end with this status.
std::string said(const RunFolder& folder, const std::string& options, int status = 0) {
  return folder.output_of(kProgram + " --config c.json " + options + " 2>&1", status);
}

TEST_CASE("a run without --output takes a folder of its own beside a finished run") {
  const RunFolder folder;
  CHECK_THAT(said(folder, ""), Contains("; results in runs/c\n"));
  const std::string weights = folder.read("runs/c/model.safetensors");
  REQUIRE_FALSE(weights.empty());
  const std::string second = said(folder, "--steps 2");
  CHECK_THAT(second, Contains("runs/c holds the weights of another run: results go to runs/c-2 "
                              "(--output names another directory, --overwrite replaces what "
                              "runs/c holds)\n"));
  CHECK_THAT(second, Contains("; results in runs/c-2\n"));
  CHECK_THAT(said(folder, "--steps 3 --num_gpus 2"), Contains("; results in runs/c-3\n"));
  CHECK(folder.read("runs/c/model.safetensors") == weights);
  CHECK_THAT(folder.read("runs/c-3/resolved_config.json"), Contains("\"value\": \"runs/c-3\""));
  // What the lines of the end name is there for the other commands.
  said(folder, "--overwrite --steps 1");
  CHECK(folder.read("runs/c/model.safetensors") != weights);
  CHECK_FALSE(fs::exists(folder.path("runs/c-4")));
}

TEST_CASE("the folder of a run without --output has the model's name, too") {
  const RunFolder folder;
  folder.write("tiny.json", R"({"type": "gptlite", "n_layer": 1, "n_embd": 8, "n_head": 1,
                                "block_size": 8})");
  CHECK_THAT(said(folder, "--steps 0 --model tiny.json"), Contains("results in runs/c-tiny\n"));
  CHECK_THAT(said(folder, "--steps 0 --model gptlite --set dstrain.model.block_size=8"),
             Contains("results in runs/c\n"));
  folder.write("gpt2.json", R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2,
                                "n_positions": 8, "vocab_size": 1000})");
  said(folder,
       "--steps 0 --output models/small --data text.txt --set dstrain.data.format=byte "
       "--model gpt2.json");
  for (const std::string name : {"models/small", "./models/small/", "models/small/config.json"})
    CHECK_THAT(said(folder, "--steps 0 --set dstrain.data.format=byte --overwrite --model " + name),
               Contains("results in runs/c-small\n"));
}

TEST_CASE("a folder that --output names is not taken from a finished run unasked") {
  const RunFolder folder;
  const auto refused = [&folder](const std::string& what) {
    const std::string text = said(folder, "--output out --steps 1", 1);
    CHECK_THAT(text, Contains("the output directory out holds " + what +
                              " of another run: --overwrite replaces that run, --resume out goes "
                              "on with it, --output names another directory"));
  };
  said(folder, "--output out");
  const std::string weights = folder.read("out/model.safetensors");
  refused("the weights");
  CHECK(folder.read("out/model.safetensors") == weights);
  said(folder, "--output out --overwrite --set dstrain.lora.r=2");
  CHECK_FALSE(fs::exists(folder.path("out/model.safetensors")));
  refused("an adapter");
  CHECK(fs::exists(folder.path("out/adapter_model.safetensors")));
  said(folder, "--output out --overwrite --set dstrain.save_last=true");
  fs::remove(folder.path("out/model.safetensors"));
  refused("the checkpoint of step 4");
  CHECK(fs::exists(folder.path("out/checkpoints/step_4")));
  said(folder, "--output other");
  CHECK_THAT(said(folder, "--resume out --steps 5 --output other", 1),
             Contains("the output directory other holds the weights of another run"));
  CHECK_THAT(said(folder, "--resume out --steps 5"), Contains("results in out\n"));
}

TEST_CASE("what no run has finished is replaced") {
  const RunFolder folder;
  said(folder, "--steps 4");
  fs::remove(folder.path("runs/c/model.safetensors"));  // as of a run that was killed
  CHECK_THAT(said(folder, ""), Contains("results in runs/c\n"));
  CHECK_FALSE(fs::exists(folder.path("runs/c-2")));
}

TEST_CASE("runs that start at the same moment have a folder each") {
  const RunFolder folder;
  const std::string words = kProgram + " --config c.json --steps 200 --num_gpus ";
  RunningProgram first = folder.start(words + "1"), second = folder.start(words + "2"),
                 third = folder.start(words + "1");
  std::set<std::string> outputs;
  for (RunningProgram* program : {&first, &second, &third}) {
    CHECK(program->wait(120) == 0);
    const std::string text = program->text();
    CAPTURE(text);
    const size_t at = text.rfind("results in ");
    REQUIRE(at != std::string::npos);
    outputs.insert(text.substr(at + 11, text.find('\n', at) - at - 11));
  }
  CHECK(outputs == std::set<std::string>{"runs/c", "runs/c-2", "runs/c-3"});
  for (const std::string& output : outputs)
    CHECK(fs::exists(folder.path(output + "/model.safetensors")));
}

TEST_CASE("the ranks of the user's mpirun agree on a folder") {
  const RunFolder folder;
  const auto start = [&folder](const std::string& options, int status = 0) {
    return folder.output_of(kMpirun + " --config c.json " + options + " 2>&1", status, kMpi);
  };
  CHECK_THAT(start(""), Contains("results in runs/c\n"));
  const std::string weights = folder.read("runs/c/model.safetensors");
  const std::string second = start("--steps 2");
  CHECK_THAT(second, Contains("results go to runs/c-2 "));
  CHECK_THAT(second, Contains("results in runs/c-2\n"));
  CHECK(folder.read("runs/c/model.safetensors") == weights);
  CHECK(fs::exists(folder.path("runs/c-2/model.safetensors")));
  CHECK_FALSE(fs::exists(folder.path("runs/c-3")));
  // An error in the input of ranks that have met is one error all the same.
  CHECK_THAT(only_error(start("--data nowhere.txt", 1)), Contains("nowhere.txt"));
  CHECK_THAT(only_error(start("--output runs/c", 1)), Contains("--overwrite replaces that run"));
  fs::remove_all(folder.path("runs"));
  folder.write("runs", "a file");
  CHECK_THAT(only_error(start("", 1)), Contains("cannot make the output directory runs/c"));
}

TEST_CASE("a restart stays in the folder that its run has taken") {
  const RunFolder folder;
  said(folder, "--steps 0");
  const std::string words =
      kProgram + " --config c.json --steps 1500 --save_interval 100 --max_restarts 1 ";
  for (const std::string ranks : {"1", "2"}) {
    RunningProgram program = folder.start(words + "--set steps_per_print=100 --num_gpus " + ranks);
    REQUIRE(wait_until([&] { return program.wrote("step=500 "); }));
    const std::vector<pid_t> running = ranks_of(program.pid());
    REQUIRE_FALSE(running.empty());
    ::kill(running.back(), SIGKILL);
    CHECK(program.wait(120) == 0);
    CAPTURE(program.text());
    CHECK(program.wrote("restart 1 of 1 in 1 s, from its checkpoint of step "));
    CHECK(program.wrote(std::string("results in runs/c-") + (ranks == "1" ? "2" : "3") + "\n"));
  }
  CHECK_FALSE(fs::exists(folder.path("runs/c-4")));
}

}  // namespace
}  // namespace dstrain
