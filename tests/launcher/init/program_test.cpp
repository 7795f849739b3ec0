// dstrain init as a user runs it: by options, on a terminal, and where a file is there already.
#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/launcher/support/run_folder.h"
#include "tests/launcher/support/terminal.h"

namespace dstrain {
namespace {

using Catch::Contains;

const std::string kInit = std::string(DSTRAIN_PROGRAM) + " init --data text.txt --size 1M ";

TEST_CASE("init writes a configuration that check calls clean and that trains") {
  const RunFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "In the beginning God created the heaven and the earth.\n";
  folder.write("text.txt", text);
  const std::string made = folder.output_of(
      kInit + "--num_gpus 2 --steps 2 --batch 4 --set dstrain.model.block_size=32 </dev/null");
  CHECK_THAT(made, Contains("train it:   dstrain --config ds_config.json --num_gpus 2\n"));
  const std::string program = DSTRAIN_PROGRAM;
  const std::string checked = folder.output_of(program + " check --config ds_config.json");
  CHECK_THAT(checked, Contains("honoured. This file trains.\n"));
  for (const char* state : {"no_effect", "unknown", "refused", "not_yet"})
    CHECK_THAT(checked, !Contains(state));
  CHECK_THAT(folder.output_of(program + " --config ds_config.json --num_gpus 2 --device cpu"),
             Contains("done: step 2 of 2"));

  const std::string before = folder.read("ds_config.json");
  CHECK_THAT(folder.output_of(kInit + "2>&1 </dev/null", 1),
             Contains("--output ds_config.json: the file is there already"));
  CHECK(folder.read("ds_config.json") == before);
}

TEST_CASE("where nobody can answer, init needs the data and takes what is usual") {
  const RunFolder folder;
  const std::string program = DSTRAIN_PROGRAM;
  CHECK_THAT(folder.output_of(program + " init 2>&1 </dev/null", 1),
             Contains("dstrain init needs --data PATH"));
  CHECK_FALSE(std::filesystem::exists(folder.path("ds_config.json")));
}

TEST_CASE("on a terminal init asks for what no option says, and again for a wrong answer") {
  const RunFolder folder;
  TerminalProgram program(folder,
                          TerminalProgram::CommandLine{std::string(DSTRAIN_PROGRAM) +
                                                       " init --size 1M --num_nodes 1 "
                                                       "--set dstrain.model.block_size=64"});
  const auto answer = [&program](const std::string& question, const std::string& text) {
    CAPTURE(question);
    REQUIRE(program.shows(question));
    program.type(text + "\n");
  };
  answer("[gptlite]: ", "");
  answer("a token file or a folder: ", "text.txt");
  answer("Ranks on each host", "two");
  REQUIRE(program.shows("expected an integer from 1 to 65536"));
  program.type("2\n");
  answer("Memory of each GPU", "");
  answer("Optimizer [AdamW]: ", "Lion");
  answer("Precision: ", "fp32");
  answer("Samples of a step", "8");
  answer("Steps [1000]: ", "5");
  const int status = program.wait(60);
  CAPTURE(program.read());
  CHECK(status == 0);
  const std::string text = folder.read("ds_config.json");
  CHECK_THAT(text, Contains("\"type\": \"Lion\""));
  CHECK_THAT(text, Contains("\"train_batch_size\": 8"));
  CHECK_THAT(text, Contains("\"steps\": 5"));
}

}  // namespace
}  // namespace dstrain
