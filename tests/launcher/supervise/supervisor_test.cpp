#include "launcher/supervise/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <regex>
#include <utility>

#include "tests/launcher/support/processes.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Which process starts the ranks.
const std::string kForks = "forks", kProgram = "program";

// A supervised run of the scripted ranks, in a temporary directory of its own.
struct Run {
  Run(const std::string& starter, int ranks, const std::string& part, int player = 0) {
    token = fs::path(temporary.path()).filename().string();
    const Environment added = {{"TMPDIR", temporary.path()}};
    program.emplace(std::vector<std::string>{DSTRAIN_SCRIPTED_RANK, token, std::to_string(ranks),
                                             part, std::to_string(player), starter},
                    added);
  }
  ~Run() {
    for (const pid_t pid : processes_with(token)) ::kill(pid, SIGKILL);
  }
  bool nothing_left() const {
    return processes_with(token).empty() && fs::is_empty(temporary.path());
  }
  bool started(const std::string& word, int times) {
    return wait_until([&] {
      size_t found = 0;
      const std::string& text = program->text();
      for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        ++found;
      return found >= static_cast<size_t>(times);
    });
  }
  TempDir temporary;
  std::string token;
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
  CHECK(run.program->wait() == 130);
  CHECK(errors(run.program->text()).empty());
  CHECK(run.nothing_left());
}

// A host with a rank that has failed and one that goes on. While they are killed the user asks twice to stop.
class FailedHost final : public HostView {
 public:
  explicit FailedHost(const RankBoard& board) : board_(board), ranks_(2) {
    for (int rank : {0, 1}) {
      RankReport& report = ranks_[static_cast<size_t>(rank)];
      report.rank = rank;
      report.pid = 100 + rank;
      report.state = RankState::running;
      report.moved_ns = report.alive_ns = monotonic_ns();
    }
    ranks_[1].failure_kind = FailureKind::run;
    ranks_[1].failure = "the disk is full";
    ranks_[1].gone = true;
  }
  const std::string& name() const override { return name_; }
  void update(bool) override {}
  std::span<const RankReport> ranks() const override { return ranks_; }
  const std::string& lost() const override { return lost_; }
  int64_t lost_since() const override { return 0; }
  void request_stop(int) override {}
  void request_trace() override {}
  // Is called again and again while a rank is alive. A signal that comes before the last one was taken is lost.
  void kill_all() override {
    constexpr int last_call = 50;
    ++calls_;
    if (calls_ == 1 || (board_.stop_request() != 0 && !std::exchange(asked_twice_, true)))
      ::kill(::getpid(), SIGTERM);
    ranks_[0].gone = asked_twice_ && calls_ >= last_call;
  }
  int stopped() const override { return 0; }
  int64_t out_of_memory_kills() const override { return 0; }

 private:
  const RankBoard& board_;
  int calls_ = 0;
  bool asked_twice_ = false;
  std::string name_ = "node2", lost_;
  std::vector<RankReport> ranks_;
};

TEST_CASE("a failure is named though the user stops the run while it ends") {
  RankBoard board = RankBoard::create(2);
  std::vector<std::unique_ptr<HostView>> hosts;
  hosts.push_back(std::make_unique<FailedHost>(board));
  const Pipe output, error;
  const RunReport report = Supervisor({.board = board,
                                       .hosts = std::move(hosts),
                                       .host_of_rank = {"node2", "node2"},
                                       .command = {"/bin/sleep", "60"},
                                       .output = output.write.get(),
                                       .error = error.write.get()})
                               .run();
  CHECK(report.exit_status == 143);
  CHECK(report.error == "rank 1 (pid 101 on node2) failed before the first step: the disk is full");
}

// A host whose ranks are in one state until a stop signal, which this process gets at once, has reached it. They vanish
// then, as mpirun got the signal too.
class StoppedHost final : public HostView {
 public:
  explicit StoppedHost(RankState state, bool stops) : stops_(stops), ranks_(1) {
    ranks_[0].pid = state == RankState::absent ? 0 : 100;
    ranks_[0].state = state;
    ranks_[0].moved_ns = ranks_[0].alive_ns = monotonic_ns();
  }
  const std::string& name() const override { return name_; }
  void update(bool) override {
    constexpr int first_call = 5;  // of those every 20 ms
    if (++calls_ == first_call) ::kill(::getpid(), SIGTERM);
  }
  std::span<const RankReport> ranks() const override { return ranks_; }
  const std::string& lost() const override { return lost_; }
  int64_t lost_since() const override { return 0; }
  void request_stop(int) override { ranks_[0].gone = ranks_[0].pid != 0; }
  void request_trace() override {}
  void kill_all() override { ranks_[0].gone = ranks_[0].pid != 0; }
  int stopped() const override { return stops_ && ranks_[0].gone ? SIGTERM : 0; }
  int64_t out_of_memory_kills() const override { return 0; }

 private:
  bool stops_;
  int calls_ = 0;
  std::string name_ = "node2", lost_;
  std::vector<RankReport> ranks_;
};

RunReport report_of_stopped(RankState state, bool stops, const std::string& starter) {
  RankBoard board = RankBoard::create(1);
  std::vector<std::unique_ptr<HostView>> hosts;
  hosts.push_back(std::make_unique<StoppedHost>(state, stops));
  const Pipe output, error;
  return Supervisor({.board = board,
                     .hosts = std::move(hosts),
                     .host_of_rank = {"node2"},
                     .command = {"/bin/sh", "-c", starter},
                     .output = output.write.get(),
                     .error = error.write.get()})
      .run();
}

TEST_CASE(
    "a stop signal that comes before the ranks of all hosts run ends the start, and is told") {
  const RunReport report = report_of_stopped(RankState::absent, false, "exec sleep 60");
  CHECK(report.exit_status == 143);
  CHECK(report.error.empty());
  CHECK(report.stop_line ==
        "stopped by signal 15 (Terminated) before the first step: this start has written no "
        "weights and no checkpoint");
}

TEST_CASE("a stop signal that reaches mpirun, too, is no failure of a rank") {
  const std::string ends = "sleep 0.2; exit 1";
  RunReport report = report_of_stopped(RankState::running, false, ends);
  CHECK(report.exit_status == 143);
  CHECK(report.error.empty());
  CHECK(report.stop_line.starts_with(
      "stopped at once by signal 15 (Terminated), which mpirun got, too: "));
  // The ranks had written their files before it ended them.
  report = report_of_stopped(RankState::running, true, ends);
  CHECK(report.exit_status == 143);
  CHECK(report.stop_line.empty());
  // A rank crashed.
  report = report_of_stopped(RankState::running, false,
                             "echo 'process rank 0 with PID 100 on node node2 exited on signal 11 "
                             "(Segmentation fault)'; exit 139");
  CHECK(report.exit_status == 2);
  CHECK(report.stop_line.empty());
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
