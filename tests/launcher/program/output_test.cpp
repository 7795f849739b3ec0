// The output directory of real runs: one run at a time, and nothing of another run's is lost by mistake.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/launcher/support/place.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

TEST_CASE(
    "a second run into the directory of one that lives is refused and changes nothing there") {
  const auto ranks = GENERATE("1", "2");
  const RunFolder place;
  RunningProgram first = place.train(
      std::string("--steps 100000000 --save_interval 2 --set steps_per_print=2 --num_gpus ") +
      ranks);
  REQUIRE(wait_until([&] { return first.wrote("step=6 "); }));
  for (const char* options : {"", "--overwrite", "--resume out", "--num_gpus 2 --overwrite"}) {
    RunningProgram second = place.train(options);
    CHECK(second.wait() == 1);
    const std::string error = only_error(second.text());
    CAPTURE(error);
    CHECK(error.starts_with("the output directory " + place.path("out") +
                            " is in use by another run (pid " + std::to_string(first.pid()) +
                            " on "));
  }
  for (const int step : {2, 4})
    CHECK(fs::exists(place.path("out/checkpoints/step_" + std::to_string(step))));
  ::kill(first.pid(), SIGKILL);
  CHECK(first.wait() == 128 + SIGKILL);
  RunningProgram third = place.train("--resume out --steps 1");
  CHECK(third.wait() == 0);
}

TEST_CASE("ranks of a user's mpirun have the directory as a launching process has it") {
  const RunFolder place;
  const Environment root = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  const auto by_mpirun = [&](const std::string& options) {
    return place.start("mpirun --oversubscribe --bind-to none -np 2 " DSTRAIN_PROGRAM
                       " --config c.json " +
                           place.token() + options,
                       root);
  };
  const std::string error =
      "the output directory " + place.path("out") + " is in use by another run";
  const std::string endless = " --steps 100000000 --set steps_per_print=2";
  const bool mpirun_first = GENERATE(true, false);
  RunningProgram first = mpirun_first ? by_mpirun(endless) : place.train(endless);
  REQUIRE(wait_until([&] { return first.wrote("step=6 "); }, 60));
  RunningProgram second = mpirun_first ? place.train("--num_gpus 2") : by_mpirun(" --overwrite");
  CHECK(second.wait(60) == 1);
  CHECK(only_error(second.text()).starts_with(error));
}

TEST_CASE(
    "checkpoints of another run are removed only where that is said, and only once the run "
    "starts") {
  const RunFolder place;
  REQUIRE(place.train("--save_interval 2").wait() == 0);
  const std::string weights = place.read("out/model.safetensors");
  RunningProgram refused = place.train("--save_interval 3 --seed 2");
  CHECK(refused.wait() == 1);
  CHECK(only_error(refused.text()) ==
        "the output directory " + place.path("out") +
            " holds another run's checkpoints, the newest of step 4: --resume " +
            place.path("out") +
            " goes on with that run, --overwrite removes its checkpoints, --output names another "
            "directory");
  // A run that cannot start removes nothing.
  CHECK(place.train("--overwrite --set dstrain.trace=nowhere/t.json").wait() == 1);
  CHECK(fs::exists(place.path("out/checkpoints/step_4")));
  CHECK(place.read("out/model.safetensors") == weights);

  CHECK(place.train("--save_interval 3 --seed 2 --overwrite").wait() == 0);
  CHECK(fs::exists(place.path("out/checkpoints/step_3")));
  for (const char* gone : {"out/checkpoints/step_2", "out/checkpoints/step_4"})
    CHECK_FALSE(fs::exists(place.path(gone)));
}

}  // namespace
}  // namespace dstrain
