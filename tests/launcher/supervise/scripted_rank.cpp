// A program in place of dstrain for the tests of the supervisor. As the launching process it supervises copies of
// itself. As a rank it behaves as a script says.
//   launcher_scripted_rank TOKEN RANKS SCRIPT RANK forks|program
// TOKEN is ignored; the test finds its processes by it. RANK follows the script, the other ranks wait for it. The rank
// starter is a fork of the launching process or a program of its own.
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "launcher/cli/command_names.h"
#include "launcher/process/stop_signals.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/ranks/rank_link.h"
#include "launcher/ranks/rank_starter.h"
#include "launcher/supervise/supervisor.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

void sleep_briefly() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

int number(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Waits for a stop request and ends the run on it.
int wait_for_stop(const RankBoard& board, RankSlot& slot) {
  while (board.stop_request() == 0) sleep_briefly();
  log::info("files written");
  board.set_stopped(board.stop_request());
  slot.set_state(RankState::done);
  return 0;
}

int follow(const RankBoard& board, int rank, const std::string& script, int actor) {
  RankSlot& slot = board.slot(rank);
  const std::vector<std::string> names = {"gather blocks.0", "linear blocks.1"};
  slot.add_names(names);
  slot.set_state(RankState::running);
  slot.begin_step(5);
  slot.publish(1);
  if (script == "deaf") {
    log::info("deaf {}", rank);
    while (true) sleep_briefly();
  }
  if (script == "done") {
    log::info("hello from {}", rank);
    slot.set_state(RankState::done);
    return 0;
  }
  if (script == "speaks") {
    log::warn("the same of all");
    fmt::print(stderr, "raw of {}\nunfinished", rank);
    slot.set_state(RankState::done);
    return 0;
  }
  if (rank != actor) {
    slot.awaited.store(0);
    slot.waits_for.store(actor);
    return wait_for_stop(board, slot);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  if (script == "killed") ::raise(SIGKILL);
  if (script == "stops") ::raise(SIGSTOP);
  while (script == "hangs") sleep_briefly();
  if (script == "crash") std::abort();
  if (script == "exit3") std::_Exit(3);
  if (script == "exit0") std::_Exit(0);
  if (script == "fails") board.fail(rank, FailureKind::run, "the disk is full");
  if (script == "refuses") board.fail(rank, FailureKind::user, "no such file: input.txt");
  return script == "refuses" ? 1 : 2;
}

int run_rank(const std::vector<std::string>& words) {
  const std::string& script = words[3];
  const int rank = world_rank_from_environment(), actor = number(words[4]);
  if (script == "never_joins") {
    fmt::print(stderr, "cannot load a library\n");
    return 7;
  }
  if (script == "stops_early" && rank == actor) ::raise(SIGSTOP);
  return follow(join_launcher(rank), rank, script, actor);
}

int launch(const std::vector<std::string>& words) {
  const int ranks = number(words[2]);
  RankBoard board = RankBoard::create(ranks);
  SupervisedRun run{.board = board, .starter = kRankStarter};
  if (words[5] == "forks") {
    run.body = [&] {
      return start_ranks_here(
          ranks, [&] { return run_rank(words); }, &board);
    };
  } else {
    RankCommand command = starter_command(ranks, words);
    run.command = command.words;
    run.environment = command.environment;
  }
  receive_stop_signals();
  // In place of the threads that compute, which no signal may interrupt.
  std::thread([] {
    while (true) sleep_briefly();
  }).detach();
  if (words[3] == "hangs") run.timeouts.instruction = 1'000'000'000;
  const RunReport report = Supervisor(std::move(run)).run();
  if (!report.error.empty()) fmt::print(stderr, "error: {}\n", report.error);
  return report.exit_status;
}

int run(const std::vector<std::string>& words) {
  try {
    if (words[1] != kRankStarterCommand) return launch(words);
    std::vector<std::string> own = words;
    own.erase(own.begin() + 1, own.begin() + 3);
    return start_ranks_here(number(words[2]), [&] { return run_rank(own); });
  } catch (const UserError& e) {
    fmt::print(stderr, "user error: {}\n", e.what());
    return 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}

}  // namespace
}  // namespace dstrain

int main(int argc, char** argv) {
  return dstrain::run(std::vector<std::string>(argv, argv + argc));
}
