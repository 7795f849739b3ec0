// The output directory of real runs: one run at a time, and nothing of another run's is lost by mistake.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

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
  CHECK(only_error(refused.text()) ==
        "the output directory " + folder.path("out") +
            " holds another run's checkpoints, the newest of step 4: --resume " +
            folder.path("out") +
            " goes on with that run, --overwrite removes its checkpoints, --output names another "
            "directory");
  // A run that cannot start removes nothing.
  CHECK(folder.train("--overwrite --set dstrain.trace=nowhere/t.json").wait() == 1);
  CHECK(fs::exists(folder.path("out/checkpoints/step_4")));
  CHECK(folder.read("out/model.safetensors") == weights);

  CHECK(folder.train("--save_interval 3 --seed 2 --overwrite").wait() == 0);
  CHECK(fs::exists(folder.path("out/checkpoints/step_3")));
  for (const char* gone : {"out/checkpoints/step_2", "out/checkpoints/step_4"})
    CHECK_FALSE(fs::exists(folder.path(gone)));
}

}  // namespace
}  // namespace dstrain
