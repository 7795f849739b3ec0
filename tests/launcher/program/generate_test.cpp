// dstrain generate, from the shell's side.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

TEST_CASE("generate prints nothing where the weights cannot be read") {
  const RunFolder folder;
  REQUIRE(folder.train("--steps 0").wait() == 0);
  fs::resize_file(folder.root / "out/model.safetensors", 100);
  RunningProgram program =
      folder.start(std::string(DSTRAIN_PROGRAM) + " generate --run out --prompt t --tokens 3");
  CHECK(program.wait() == 1);
  CHECK(program.text().starts_with("dstrain: error: "));
}

TEST_CASE("generate continues a prompt, the same for the same seed") {
  const RunFolder folder;
  REQUIRE(folder.train("").wait() == 0);
  const std::string generate = DSTRAIN_PROGRAM " generate --run out --tokens 12 ";
  RunningProgram first = folder.start(generate + "--prompt 'the quick' --seed 5 2>err");
  CHECK(first.wait() == 0);
  CHECK(first.text().starts_with("the quick"));
  CHECK(first.text().size() == 9 + 12 + 1);
  RunningProgram again = folder.start(generate + "--prompt 'the quick' --seed 5 2>err");
  CHECK(again.wait() == 0);
  CHECK(again.text() == first.text());

  RunningProgram greedy = folder.start(generate + "--prompt_ids 1,2 --temperature 0");
  CHECK(greedy.wait() == 0);
  // The likeliest alone have a small probability; all have the largest.
  RunningProgram likeliest = folder.start(generate + "--prompt_ids 1,2 --top_p 0.000001");
  CHECK(likeliest.wait() == 0);
  CHECK(likeliest.text() == greedy.text());
  RunningProgram all = folder.start(generate + "--prompt 'the quick' --seed 5 --top_p 1 2>err");
  CHECK(all.wait() == 0);
  CHECK(all.text() == first.text());
  RunningProgram some = folder.start(generate + "--prompt 'the quick' --seed 5 --top_p 0.2 2>err");
  CHECK(some.wait() == 0);
  CHECK(some.text() != first.text());

  RunningProgram input = folder.start("echo 'the quick' | " + generate + "--seed 5 2>err");
  CHECK(input.wait() == 0);
  CHECK(input.text() == first.text());
  RunningProgram none = folder.start(generate + "</dev/null");
  CHECK(none.wait() == 1);
  CHECK(only_error(none.text()) ==
        "standard input: the prompt is empty; give at least one character");
  RunningProgram outside = folder.start(generate + "--prompt_ids 1,99");
  CHECK(outside.wait() == 1);
  CHECK(only_error(outside.text()) == "--prompt_ids: 99 is outside the vocabulary of 28 ids");
  RunningProgram strange = folder.start(generate + "--prompt 'the QUICK'");
  CHECK(strange.wait() == 1);
  CHECK(only_error(strange.text()).find("\"Q\"") != std::string::npos);
  RunningProgram empty = folder.start(generate + "--prompt ''");
  CHECK(empty.wait() == 1);
  CHECK(only_error(empty.text()).find("empty") != std::string::npos);
  RunningProgram nowhere =
      folder.start(DSTRAIN_PROGRAM " generate --run nowhere --tokens 1 --prompt x");
  CHECK(nowhere.wait() == 1);
  CHECK(
      std::regex_match(only_error(nowhere.text()), std::regex("--run nowhere: .*give the.*run.*")));
}

TEST_CASE("generate takes a checkpoint, of several ranks that divide the weights, too") {
  const RunFolder folder;
  REQUIRE(folder
              .train("--num_gpus 2 --save_interval 4 --set zero_optimization.stage=3 --set "
                     "bf16.enabled=true")
              .wait() == 0);
  const std::string prompt = " --prompt 'the quick' --tokens 12 --seed 5";
  RunningProgram last = folder.start(DSTRAIN_PROGRAM " generate --run out" + prompt);
  CHECK(last.wait() == 0);
  for (const std::string run : {"out/checkpoints/step_4", "out/checkpoints/step_4/"}) {
    RunningProgram checkpoint = folder.start(DSTRAIN_PROGRAM " generate --run " + run + prompt);
    CHECK(checkpoint.wait() == 0);
    CHECK(checkpoint.text() == last.text());
  }
  RunningProgram inside = folder.start("sh -c \"cd out/checkpoints/step_4 && exec " DSTRAIN_PROGRAM
                                       " generate --run ." +
                                       prompt + "\"");
  CHECK(inside.wait() == 0);
  CHECK(inside.text() == last.text());
  fs::remove(folder.root / "out/model.safetensors");
  RunningProgram killed = folder.start(DSTRAIN_PROGRAM " generate --run out" + prompt);
  CHECK(killed.wait() == 0);
  const std::string warning =
      "warning: out has no weights of the run's end: those of its newest checkpoint, of step 4, "
      "are "
      "taken\n";
  CHECK(killed.text() == warning + last.text());
  fs::remove_all(folder.root / "out/checkpoints");
  RunningProgram nothing = folder.start(DSTRAIN_PROGRAM " generate --run out" + prompt);
  CHECK(nothing.wait() == 1);
  CHECK(only_error(nothing.text()).find("nor a checkpoint (out/checkpoints/step_N)") !=
        std::string::npos);
}

}  // namespace
}  // namespace dstrain
