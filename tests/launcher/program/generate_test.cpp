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

TEST_CASE(
    "generate continues the lines of a file, each as alone, and ends texts where it is told") {
  const RunFolder folder;
  REQUIRE(folder.train("").wait() == 0);
  const std::string generate = DSTRAIN_PROGRAM " generate --run out --tokens 9 --seed 3 ";
  const auto text_of = [&](const std::string& options) {
    RunningProgram program = folder.start(generate + options + " 2>err");
    CHECK(program.wait() == 0);
    return program.text();
  };
  const std::vector<std::string> prompts{"the quick", "t", "fox", "q",  "the",
                                         "brown",     "o", "u",   "he", "x"};
  std::string lines, expected;
  for (const std::string& prompt : prompts) {
    lines += prompt + "\n";
    expected += text_of("--prompt '" + prompt + "'");
  }
  std::ofstream(folder.root / "prompts.txt") << lines;
  CHECK(text_of("--prompts prompts.txt") == expected);
  const std::string twice = text_of("--prompt fox --samples 2");
  CHECK(twice.starts_with(text_of("--prompt fox")));
  CHECK(twice.size() == 2 * (3 + 9 + 1));
  CHECK(twice.substr(0, 13) != twice.substr(13));

  const std::string whole = text_of("--prompt 'the quick'");
  const std::string stop = whole.substr(12, 3), none = "@@";
  const size_t at = whole.find(stop, 9);
  CHECK(text_of("--prompt 'the quick' --stop '" + none + "' --stop '" + stop + "'") ==
        whole.substr(0, at) + "\n");
  CHECK(text_of("--prompt 'the quick' --stop '" + none + "'") == whole);

  const auto error_of = [&](const std::string& options) {
    RunningProgram program = folder.start(generate + options);
    CHECK(program.wait() == 1);
    return only_error(program.text());
  };
  std::ofstream(folder.root / "gap.txt") << "fox\n\nfox\n";
  CHECK(error_of("--prompts gap.txt") ==
        "gap.txt:2: the prompt is empty; give at least one character");
  std::ofstream(folder.root / "strange.txt") << "fox\nFOX\n";
  CHECK(error_of("--prompts strange.txt").find("\"F\"") != std::string::npos);
  std::ofstream(folder.root / "nothing.txt") << "";
  CHECK(error_of("--prompts nothing.txt") ==
        "--prompts nothing.txt: the file is empty; give a prompt in each line");
  CHECK(error_of("--prompts absent.txt").find("absent.txt") != std::string::npos);
}

TEST_CASE("generate goes on beyond the context, and warns of a prompt that is longer") {
  const RunFolder folder;
  REQUIRE(folder.train("").wait() == 0);
  const std::string prompt(100, 't');
  RunningProgram program =
      folder.start(DSTRAIN_PROGRAM " generate --run out --tokens 40 --prompt " + prompt + " 2>err");
  CHECK(program.wait() == 0);
  CHECK(program.text().size() == 100 + 40 + 1);
  std::ifstream errors(folder.root / "err");
  const std::string warning{std::istreambuf_iterator<char>(errors), {}};
  CHECK(warning.find("a prompt has 100 tokens; the model sees the last ") != std::string::npos);
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
