// The output directory of real runs: one run at a time, and nothing of another run's is lost by mistake.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

// The names of the checkpoints of the run in `out`.
Names checkpoints_of(const RunFolder& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder.path("out/checkpoints")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

TEST_CASE(
    "a second run into the directory of one that lives is refused and changes nothing there") {
  const auto ranks = GENERATE("1", "2");
  const RunFolder folder;
  RunningProgram first = folder.train(
      std::string("--steps 100000000 --save_interval 2 --set steps_per_print=2 --num_gpus ") +
      ranks);
  REQUIRE(wait_until([&] { return first.wrote("step=6 "); }));
  for (const char* options : {"", "--overwrite", "--resume out", "--num_gpus 2 --overwrite"}) {
    RunningProgram second = folder.train(options);
    CHECK(second.wait() == 1);
    const std::string error = only_error(second.text());
    CAPTURE(error);
    CHECK(error.starts_with("the output directory " + folder.path("out") +
                            " is in use by another run (pid " + std::to_string(first.pid()) +
                            " on "));
  }
  for (const int step : {2, 4})
    CHECK(fs::exists(folder.path("out/checkpoints/step_" + std::to_string(step))));
  ::kill(first.pid(), SIGKILL);
  CHECK(first.wait() == 128 + SIGKILL);
  RunningProgram third = folder.train("--resume out --steps 1");
  CHECK(third.wait() == 0);
}

TEST_CASE(
    "a run whose output directory was removed or replaced ends, and writes nothing at its path") {
  const auto options = GENERATE("--num_gpus 1", "--num_gpus 2 --max_restarts 2");
  const bool replaced = GENERATE(true, false);
  const RunFolder folder;
  RunningProgram program =
      folder.train(std::string("--steps 100000000 --save_interval 1000 ") + options);
  REQUIRE(wait_until([&] { return lines_of(folder.read("out/metrics.jsonl")) >= 3; }));
  fs::rename(folder.path("out"), folder.path("old"));
  if (replaced) fs::create_directory(folder.path("out"));
  CHECK(program.wait() == 2);
  CHECK(only_error(program.text())
            .find("the output directory " + folder.path("out") + " was removed or replaced") !=
        std::string::npos);
  CHECK(program.text().find("restart 1") == std::string::npos);
  CHECK(fs::exists(folder.path("out")) == replaced);
  CHECK((!replaced || fs::is_empty(folder.path("out"))));
}

TEST_CASE("an output directory that is removed during the start is not made again") {
  const auto options = GENERATE("--num_gpus 1", "--num_gpus 2 --max_restarts 2");
  const bool replaced = GENERATE(true, false);
  const RunFolder folder;
  // A model with which ranks take a moment to begin.
  RunningProgram program = folder.train(
      std::string("--steps 3 --set dstrain.model.n_embd=768 --set dstrain.model.n_layer=4 ") +
      options);
  REQUIRE(wait_until([&] { return !folder.read("out/.dstrain.lock").empty(); }));
  fs::rename(folder.path("out"), folder.path("old"));
  if (replaced) {
    fs::create_directory(folder.path("out"));
    folder.write("out/.dstrain.lock", "pid 1 on another\n");
  }
  CHECK(program.wait() == 2);
  CHECK(only_error(program.text())
            .find("the output directory " + folder.path("out") + " was removed or replaced") !=
        std::string::npos);
  CHECK(fs::exists(folder.path("out")) == replaced);
  CHECK_FALSE(fs::exists(folder.path("out/metrics.jsonl")));
}

TEST_CASE("the start of a run names what \"auto\" became, once") {
  const auto ranks = GENERATE("1", "2");
  const RunFolder folder;
  RunningProgram run = folder.train(
      std::string("--steps 1 --set optimizer.type=AdamW --set optimizer.params.lr=auto --set "
                  "zero_optimization.reduce_bucket_size=auto --num_gpus ") +
      ranks);
  REQUIRE(run.wait() == 0);
  const std::string line = "\"auto\" became optimizer.params.lr 5e-05\n";
  const size_t at = run.text().find(line);
  CHECK(at != std::string::npos);
  CHECK(run.text().find("became", at + line.size()) == std::string::npos);
}

TEST_CASE("ranks of a user's mpirun have the directory as a launching process has it") {
  const RunFolder folder;
  const Environment root = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  const auto by_mpirun = [&](const std::string& options) {
    return folder.start("mpirun --oversubscribe --bind-to none -np 2 " DSTRAIN_PROGRAM
                        " --config c.json " +
                            folder.token() + options,
                        root);
  };
  const std::string error =
      "the output directory " + folder.path("out") + " is in use by another run";
  const std::string endless = " --steps 100000000 --set steps_per_print=2";
  const bool mpirun_first = GENERATE(true, false);
  RunningProgram first = mpirun_first ? by_mpirun(endless) : folder.train(endless);
  REQUIRE(wait_until([&] { return first.wrote("step=6 "); }, 60));
  RunningProgram second = mpirun_first ? folder.train("--num_gpus 2") : by_mpirun(" --overwrite");
  CHECK(second.wait(60) == 1);
  CHECK(only_error(second.text()).starts_with(error));
}

TEST_CASE(
    "checkpoints of another run are removed only where that is said, and only once the run "
    "starts") {
  const RunFolder folder;
  REQUIRE(folder.train("--save_interval 2").wait() == 0);
  const std::string weights = folder.read("out/model.safetensors");
  RunningProgram refused = folder.train("--save_interval 3 --seed 2");
  CHECK(refused.wait() == 1);
  CHECK(only_error(refused.text()) == "the output directory " + folder.path("out") +
                                          " holds the checkpoint of step 4 of another run: "
                                          "--overwrite replaces that run, --resume " +
                                          folder.path("out") +
                                          " goes on with it, --output names another directory");
  // A run that cannot start removes nothing.
  CHECK(folder.train("--overwrite --set dstrain.trace=nowhere/t.json").wait() == 1);
  CHECK(fs::exists(folder.path("out/checkpoints/step_4")));
  CHECK(folder.read("out/model.safetensors") == weights);

  CHECK(folder.train("--save_interval 3 --seed 2 --overwrite").wait() == 0);
  CHECK(fs::exists(folder.path("out/checkpoints/step_3")));
  for (const char* gone : {"out/checkpoints/step_2", "out/checkpoints/step_4"})
    CHECK_FALSE(fs::exists(folder.path(gone)));
}

TEST_CASE("a killed run leaves no weights of the run before it beside its own settings") {
  const RunFolder folder;
  REQUIRE(folder.train("").wait() == 0);
  REQUIRE(fs::exists(folder.path("out/model.safetensors")));
  RunningProgram killed =
      folder.train("--overwrite --steps 100000000 --set dstrain.model.n_head=1");
  REQUIRE(wait_until([&] { return killed.wrote("step=3 "); }));
  ::kill(killed.pid(), SIGKILL);
  killed.wait();
  CHECK_FALSE(fs::exists(folder.path("out/model.safetensors")));
}

TEST_CASE("a killed run leaves the weights of its directory that it began with") {
  const RunFolder folder;
  REQUIRE(folder.train("").wait() == 0);
  const std::string weights = folder.read("out/model.safetensors");
  RunningProgram killed = folder.train("--overwrite --steps 100000000 --init_weights " +
                                       folder.path("out/model.safetensors"));
  REQUIRE(wait_until([&] { return killed.wrote("step=3 "); }));
  ::kill(killed.pid(), SIGKILL);
  killed.wait();
  CHECK(folder.read("out/model.safetensors") == weights);
}

TEST_CASE("a run goes on in its own folder, by whatever path its checkpoint is named") {
  const RunFolder folder;
  REQUIRE(folder.train("--save_interval 2").wait() == 0);
  fs::create_directory_symlink("out", folder.path("link"));
  fs::create_directory_symlink("out/checkpoints/step_4", folder.path("newest"));
  fs::create_directory_symlink("out/checkpoints", folder.path("all"));
  const auto [place, resume] = GENERATE(table<std::string, std::string>({
      {".", "newest"},
      {".", "newest/"},
      {".", "all"},
      {".", "all/step_4"},
      {".", "link/checkpoints/step_4"},
      {".", "newest --output out --overwrite"},
      {".", "out/checkpoints/step_4 --output link --overwrite"},
      {"out", "."},
      {"out/checkpoints", "step_4"},
      {"out/checkpoints", "."},
      {"out/checkpoints", "step_4 --output .. --overwrite"},
      {"out/checkpoints/step_4", "."},
      {"out/checkpoints/step_4", "../step_4"},
  }));
  RunningProgram program = folder.start(
      "/usr/bin/env -C " + place + " " DSTRAIN_PROGRAM " --config " + folder.path("c.json") +
      " --data " + folder.path("text.txt") + " --save_interval 2 --steps 6 --resume " + resume);
  const int status = program.wait(60);
  CAPTURE(place, resume, program.text());
  REQUIRE(status == 0);
  CHECK(program.wrote("resumes after step 4 of "));
  CHECK(checkpoints_of(folder) == Names{"step_2", "step_4", "step_6"});
  // Six steps, and a validation of every second.
  CHECK(lines_of(folder.read("out/metrics.jsonl")) == 9);
  for (const char* stray : {"out/checkpoints/checkpoints", "out/checkpoints/metrics.jsonl",
                            "out/checkpoints/step_4/metrics.jsonl", "checkpoints", "metrics.jsonl"})
    CHECK_FALSE(fs::exists(folder.path(stray)));
}

TEST_CASE("the batch of the run holds for a resume by the folder of its checkpoints") {
  const RunFolder folder;
  const std::string config = R"({"dstrain": {"model": {"n_layer": 1, "n_embd": 16, "n_head": 2,
      "block_size": 8}, "data": {"path": "text.txt"}, "steps": 2}})";
  folder.write("open.json", config);
  const std::string program = DSTRAIN_PROGRAM " --config open.json ";
  RunningProgram first =
      folder.start(program + "--output out --set train_micro_batch_size_per_gpu=3");
  CHECK(first.wait(60) == 0);
  CAPTURE(first.text());
  const std::string resume =
      GENERATE("out", "out/checkpoints", "out/checkpoints/", "out/checkpoints/step_2");
  RunningProgram second = folder.start(program + "--steps 3 --resume " + resume);
  const int status = second.wait(60);
  CAPTURE(resume, second.text());
  CHECK(status == 0);
  CHECK_FALSE(second.wrote("train_batch_size was"));
}

TEST_CASE("the checkpoint of a run's end takes the place of none that keep_last keeps") {
  const RunFolder folder;
  const std::string saves = "--save_interval 3 --set dstrain.keep_last=1 ";
  CHECK(folder.train(saves + "--steps 7 --set dstrain.save_last=true").wait() == 0);
  CHECK(checkpoints_of(folder) == Names{"step_6", "step_7"});
  RunningProgram other = folder.train("");
  CHECK(other.wait() == 1);
  CHECK(only_error(other.text()).find("holds the checkpoint of step 7 of another run") !=
        std::string::npos);
}

}  // namespace
}  // namespace dstrain
