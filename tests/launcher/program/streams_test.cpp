// What the program writes where: streams, terminals, readers that do not read.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <regex>

#include "tests/launcher/support/run_folder.h"
#include "tests/launcher/support/terminal.h"

namespace dstrain {
namespace {

int steps_of(const RunFolder& folder) {
  return lines_of(folder.read("out/metrics.jsonl"));
}

TEST_CASE("lines about the run go to standard output, warnings to standard error") {
  const std::string ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  const RunFolder folder;
  RunningProgram program =
      folder.start(DSTRAIN_PROGRAM " --config c.json " + folder.token() + " --num_gpus " + ranks +
                   " --max_restarts 1 >output 2>error");  // --max_restarts warns: nothing is saved
  REQUIRE(program.wait() == 0);
  const std::string output = folder.read("output"), error = folder.read("error");
  CAPTURE(output, error);
  CHECK(output.find("step=4 ") != std::string::npos);
  CHECK(output.find("warning: ") == std::string::npos);
  CHECK(error.find("warning: ") != std::string::npos);
  CHECK(error.find("step=") == std::string::npos);
}

TEST_CASE("lines name one thing in the singular") {
  const RunFolder folder;
  RunningProgram program = folder.train(
      "--num_gpus 1 --max_restarts 1 --steps 2 --set dstrain.trace=tr.json "
      "--set comms_logger.enabled=true");
  CHECK(program.wait() == 0);
  CHECK(program.wrote("launcher local: 1 rank on this machine\n"));
  CHECK(program.wrote("trace of 1 step in tr.json: "));
  RunningProgram plan =
      folder.start(DSTRAIN_PROGRAM
                   " plan --config c.json --device cpu --num_gpus 2 --pipeline_num_stages 2 "
                   "--set dstrain.model.n_layer=2 --set train_batch_size=1 --timeline 2>err");
  CHECK(plan.wait() == 0);
  CHECK(plan.wrote("an estimated step: 2 stages, 1 micro-batch\n"));
}

TEST_CASE("--log_time begins every line with date and time, once") {
  const std::string ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  const RunFolder folder;
  RunningProgram program = folder.train("--log_time --num_gpus " + ranks);
  REQUIRE(program.wait() == 0);
  std::istringstream lines(program.text());
  const std::regex stamped(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [^\d].*)");
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(std::regex_match(line, stamped));
  }
}

const std::string kEndless =  // a line of a step every million steps
    "--steps 100000000 --set steps_per_print=1000000 --set dstrain.eval_interval=0 --num_gpus ";

TEST_CASE("a terminal shows the live line, whatever the number of ranks") {
  const std::string ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  const RunFolder folder;
  TerminalProgram program(folder, kEndless + ranks);
  program.resize(120);
  const std::regex line(
      R"(\x1b\[Kstep \d+/100000000 \| loss \d\.\d+ \| \w+ left \| [\d.]+k? tokens/s)"
      R"( \| [\d.]+k? samples/s \| MFU [\d.]+% \| mem [\d.]+.B\r)");
  CHECK(wait_until([&] { return std::regex_search(program.read(), line); }));
  ::kill(program.pid(), SIGTERM);
  CHECK(program.wait() == 128 + SIGTERM);
  const std::string& text = program.read();
  CHECK(text.find("\x1b[Kstopped after step ") != std::string::npos);  // the last line stands alone
}

TEST_CASE("lines of steps stand above the live line") {
  const std::string ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  const RunFolder folder;
  TerminalProgram program(folder, "--num_gpus " + ranks);
  CHECK(program.wait() == 0);
  const std::string& text = program.read();
  CAPTURE(text);
  CHECK(text.find("\r\x1b[Kstep 0/4 | first step") != std::string::npos);
  CHECK(text.find("\r\x1b[Kstep=4 ") != std::string::npos);
}

TEST_CASE("a terminal that cannot erase a line gets no live line and no escape sequence") {
  const std::string ranks = GENERATE("1", "2");
  const RunFolder folder;
  TerminalProgram program(folder, "--num_gpus " + ranks, "dumb");
  CHECK(program.wait() == 0);
  CHECK(program.read().find("step=4 ") != std::string::npos);
  CHECK(program.read().find('\x1b') == std::string::npos);
  CHECK(program.read().find(" | ") == std::string::npos);
}

TEST_CASE("the live line is as wide as the terminal, which becomes narrower and wider") {
  const std::string ranks = GENERATE("1", "2");
  const RunFolder folder;
  TerminalProgram program(folder, kEndless + ranks);
  REQUIRE(wait_until([&] { return program.read().find(" left ") != std::string::npos; }));
  // Returns the lines that are drawn with so many columns, but the first ones: what was under way when the size
  // changed may still be as wide as before.
  const auto lines_at = [&](int columns) {
    program.resize(columns);
    const size_t resized = program.read().size();
    std::vector<std::string> lines;
    REQUIRE(wait_until([&] {
      const std::string text = program.read().substr(resized);
      lines.clear();
      for (size_t at = 0; (at = text.find("\x1b[Kstep ", at)) != std::string::npos; ++at)
        if (const size_t end = text.find('\r', at); end != std::string::npos)
          lines.push_back(text.substr(at + 3, end - at - 3));
      return lines.size() > 6;
    }));
    lines.erase(lines.begin(), lines.begin() + 3);
    return lines;
  };
  for (const std::string& line : lines_at(24)) CHECK(line.size() == 23);
  for (const std::string& line : lines_at(120)) CHECK(line.ends_with("B"));
  for (const std::string& line : lines_at(40)) CHECK(line.size() == 39);
  ::kill(program.pid(), SIGTERM);
  CHECK(program.wait() == 128 + SIGTERM);
}

TEST_CASE("ranks train on while nobody reads what they write") {
  constexpr int kSteps = 3000;  // a line of each is more than pipes and terminals take
  const RunFolder folder;
  const std::string options = "--num_gpus 2 --steps 100000000 --set dstrain.eval_interval=0";
  SECTION("on a terminal") {
    TerminalProgram program(folder, options);
    REQUIRE(wait_until([&] { return steps_of(folder) > kSteps; }));
    ::kill(program.pid(), SIGTERM);
    CHECK(program.wait() == 128 + SIGTERM);
    CHECK(program.read().find("progress lines were dropped") == std::string::npos);
  }
  SECTION("in a pipe") {
    RunningProgram program = folder.train(options);
    REQUIRE(wait_until([&] { return steps_of(folder) > kSteps; }));
    ::kill(program.pid(), SIGTERM);
    CHECK(program.wait() == 128 + SIGTERM);
    CHECK(program.wrote("step=1 "));
  }
}

TEST_CASE("a run goes on after whoever read its output has gone") {
  const std::string ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  const RunFolder folder;
  RunningProgram program = folder.start("sh -c '" DSTRAIN_PROGRAM " --config c.json " +
                                        folder.token() + " --num_gpus " + ranks + " 2>&1 | true'");
  CHECK(program.wait() == 0);
  REQUIRE(wait_until([&] { return processes_with(folder.token()).empty(); }));
  CHECK(steps_of(folder) == 6);
}

TEST_CASE("closed standard streams change nothing, and no file of the run takes their place") {
  const std::string ranks = GENERATE("1", "2");
  const std::string closed =
      GENERATE("<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-");
  CAPTURE(ranks, closed);
  const RunFolder folder;
  RunningProgram program = folder.train("--num_gpus " + ranks + " " + closed);
  CHECK(program.wait() == 0);
  CHECK(steps_of(folder) == 6);
  CHECK(lines_of(folder.read("out/.dstrain.lock")) <= 1);  // its own line, no log
  const bool shown = closed == "<&-" || closed == "2>&-" || closed == "<&- 2>&-";
  CHECK((program.text().find("step=4 ") != std::string::npos) == shown);
}

TEST_CASE("a result that a closed standard output cannot take is an error") {
  const RunFolder folder;
  RunningProgram program = folder.start(DSTRAIN_PROGRAM " plan --config c.json >&-");
  CHECK(program.wait() == 2);
  CHECK(only_error(program.text()).starts_with("cannot write to standard output: "));
}

}  // namespace
}  // namespace dstrain
