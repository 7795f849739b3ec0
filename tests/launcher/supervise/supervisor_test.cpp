#include "launcher/supervise/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>

#include "tests/launcher/support/processes.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Which process starts the ranks.
const std::string kForks = "forks", kProgram = "program";

// A supervised run of the scripted ranks, in a temporary directory of its own.
struct Run {
  Run(const std::string& starter, int ranks, const std::string& part, int player = 0) {
    static int runs = 0;
    token = "dstrain_test_" + std::to_string(::getpid()) + "_" + std::to_string(runs++);
    temporary = fs::temp_directory_path() / token;
    fs::create_directory(temporary);
    const Environment added = {{"TMPDIR", temporary.string()}};
    program.emplace(std::vector<std::string>{DSTRAIN_SCRIPTED_RANK, token, std::to_string(ranks),
                                             part, std::to_string(player), starter},
                    added);
  }
  ~Run() {
    for (const pid_t pid : processes_with(token)) ::kill(pid, SIGKILL);
    fs::remove_all(temporary);
  }
  bool nothing_left() const { return processes_with(token).empty() && fs::is_empty(temporary); }
  bool started(const std::string& word, int times) {
    return wait_until([&] {
      size_t found = 0;
      const std::string& text = program->text();
      for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        ++found;
      return found >= static_cast<size_t>(times);
    });
  }
  std::string token;
  fs::path temporary;
  std::optional<RunningProgram> program;
};

// The lines that report an error.
std::vector<std::string> errors(const std::string& text) {
  std::vector<std::string> lines;
  static const std::regex line("(^|\n)(error: [^\n]*)");
  for (std::sregex_iterator i(text.begin(), text.end(), line), end; i != end; ++i)
    lines.push_back((*i)[2]);
  return lines;
}

TEST_CASE("a run that succeeds ends with 0, and its output is what the ranks wrote") {
  const std::string starter = GENERATE(kForks, kProgram);
  Run run(starter, 2, "done");
  CHECK(run.program->wait() == 0);
  CHECK(run.program->wrote("hello from 0\n"));
  CHECK(run.program->wrote("[rank 1] hello from 1\n"));
  CHECK(run.program->text().size() == std::string("hello from 0\n[rank 1] hello from 1\n").size());
  CHECK(run.nothing_left());
}

TEST_CASE(
    "what all ranks write is folded, raw text is given its rank, the last words are not lost") {
  const std::string starter = GENERATE(kForks, kProgram);
  Run run(starter, 4, "speaks");
  CHECK(run.program->wait() == 0);
  const std::string text = "\n" + run.program->text();
  CAPTURE(text);
  for (const char* line :
       {"\nwarning: the same of all\n", "\n[ranks 1-3] warning: the same of all\n", "raw of 0\n",
        "[rank 1] raw of 1\n", "[rank 3] raw of 3\n", "unfinished\n"})
    CHECK(text.find(line) != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') >= 7);
}

struct Mishap {
  std::string part;
  int status;
  std::string report;  // a regular expression; what follows the rank's name
};

const std::string kPlace =
    R"( at step 5, in linear blocks\.1 \(ranks 0,2 waited for it in gather blocks\.0\))";

TEST_CASE("the root cause is named once, with its place, and nothing is left") {
  const auto mishap = GENERATE(values<Mishap>({
      {"killed", 2, " was killed by signal 9 \\(Killed\\)" + kPlace},
      {"crash", 2, " was killed by signal 6 \\(Aborted\\)" + kPlace},
      {"exit3", 2, " ended by itself with exit status 3" + kPlace},
      {"exit0", 2, " (ended unexpectedly|ended by itself with exit status 0)" + kPlace},
      {"stops", 2, " is stopped \\(as by SIGSTOP\\)" + kPlace},
      {"hangs", 2,
       " has not moved for [0-9.]+ s" + kPlace + " \\(dstrain.timeout_s is the limit\\)"},
      {"fails", 2, " failed" + kPlace + ": the disk is full"},
      {"refuses", 1, "no such file: input\\.txt"},
  }));
  const std::string starter = GENERATE(kForks, kProgram);
  CAPTURE(mishap.part, starter);
  Run run(starter, 3, mishap.part, 1);
  CHECK(run.program->wait() == mishap.status);
  CAPTURE(run.program->text());
  const auto reports = errors(run.program->text());
  REQUIRE(reports.size() == 1);
  const std::string name = mishap.part == "refuses" ? "error: " : R"(error: rank 1 \(pid \d+\))";
  CHECK(std::regex_match(reports[0], std::regex(name + mishap.report)));
  CHECK(run.nothing_left());
}

TEST_CASE("a rank that is stopped before it has joined is named, and nothing is left") {
  Run run(kForks, 2, "stops_early", 1);
  CHECK(run.program->wait() == 2);
  CAPTURE(run.program->text());
  CHECK(std::regex_search(
      run.program->text(),
      std::regex(
          R"(error: rank 1 \(pid \d+\) is stopped \(as by SIGSTOP\) before the first step)")));
  CHECK(run.nothing_left());
}

TEST_CASE("a rank killed from outside is named") {
  const std::string starter = GENERATE(kForks, kProgram);
  Run run(starter, 2, "deaf");
  REQUIRE(run.started("deaf", 2));
  const std::vector<pid_t> ranks = ranks_of(run.program->pid());
  REQUIRE(ranks.size() == 2);
  const pid_t victim = ranks.back();
  ::kill(victim, SIGKILL);
  CHECK(run.program->wait() == 2);
  CHECK(std::regex_search(run.program->text(),
                          std::regex("error: rank [01] \\(pid " + std::to_string(victim) +
                                     "\\) was killed by signal 9")));
  CHECK(run.nothing_left());
}

TEST_CASE("a first signal lets the ranks finish") {
  const auto [number, status] = GENERATE(table<int, int>({{SIGINT, 130}, {SIGTERM, 143}}));
  const std::string starter = GENERATE(kForks, kProgram);
  Run run(starter, 2, "waits", 9);
  REQUIRE(wait_until([&] { return processes_with(run.token).size() == 4; }));
  ::kill(run.program->pid(), number);
  CHECK(run.program->wait() == status);
  CHECK(run.program->wrote("files written"));
  CHECK(errors(run.program->text()).empty());
  CHECK(run.nothing_left());
}

TEST_CASE("a second signal stops at once") {
  const std::string starter = GENERATE(kForks, kProgram);
  Run run(starter, 2, "deaf");
  REQUIRE(run.started("deaf", 2));
  ::kill(run.program->pid(), SIGINT);
  REQUIRE(wait_until([&] { return run.program->wrote("again to stop at once"); }));
  CHECK(processes_with(run.token).size() == 4);
  ::kill(run.program->pid(), SIGINT);
  CHECK(run.program->wait(5) == 130);
  CHECK(errors(run.program->text()).empty());
  CHECK(run.nothing_left());
}

TEST_CASE("no process outlives a launcher that is killed") {
  const std::string starter = GENERATE(kForks, kProgram);
  Run run(starter, 3, "deaf");
  REQUIRE(run.started("deaf", 3));
  CHECK(processes_with(run.token).size() == 5);
  ::kill(run.program->pid(), SIGKILL);
  CHECK(run.program->wait() == 137);
  CHECK(wait_until([&] { return processes_with(run.token).empty(); }));
}

TEST_CASE("a killed starter is named, and its ranks do not outlive it") {
  const std::string starter = GENERATE(kForks, kProgram);
  Run run(starter, 2, "deaf");
  REQUIRE(run.started("deaf", 2));
  REQUIRE(processes_with(run.token).size() == 4);
  ::kill(starter_of(run.program->pid()), SIGKILL);
  CHECK(run.program->wait() == 2);
  CHECK(run.program->wrote(
      "error: the rank starter was ended by signal 9 (Killed); its ranks were stopped\n"));
  CHECK(run.nothing_left());
}

TEST_CASE("ranks that never join are reported with what was said") {
  Run run(kProgram, 2, "never_joins");
  CHECK(run.program->wait() == 2);
  CHECK(run.program->wrote(
      "error: the rank starter ended with exit status 7 before rank 0 was done:\n  "));
  CHECK(run.program->wrote("\n  cannot load a library\n"));
  CHECK(run.nothing_left());
}

}  // namespace
}  // namespace dstrain
