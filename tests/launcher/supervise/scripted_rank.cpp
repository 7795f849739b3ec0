// A stand-in for dstrain, for the tests of the supervisor: as launcher it supervises copies of itself, as
// rank it plays one part.
//   launcher_scripted_rank TOKEN RANKS PART RANK forks|program
// TOKEN is ignored: it makes the processes of one test findable. RANK plays the part, others wait. What
// starts the ranks is a fork of the launcher or a program of its own.
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "launcher/ranks/rank_command.h"
#include "launcher/ranks/rank_link.h"
#include "launcher/ranks/rank_starter.h"
#include "launcher/process/stop_signals.h"
#include "launcher/supervise/supervisor.h"
#include "runtime/comm/communicator.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

void rest() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

int number(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Waits for a stop request and ends the run on it.
int wait_for_stop(const RankBoard& board, RankSlot& slot) {
  while (board.stop_request() == 0) rest();
  log::info("files written");
  board.set_stopped(board.stop_request());
  slot.set_state(RankState::done);
  return 0;
}

int play(const RankBoard& board, int rank, const std::string& part, int player) {
  RankSlot& slot = board.slot(rank);
  const std::vector<std::string> names = {"gather blocks.0", "linear blocks.1"};
  slot.add_names(names);
  slot.set_state(RankState::running);
  slot.begin_step(5);
  slot.publish(1);
  if (part == "deaf") {
    log::info("deaf {}", rank);
    while (true) rest();
  }
  if (part == "done") {
    log::info("hello from {}", rank);
    slot.set_state(RankState::done);
    return 0;
  }
  if (part == "speaks") {
    log::warn("the same of all");
    fmt::print(stderr, "raw of {}\nunfinished", rank);
    slot.set_state(RankState::done);
    return 0;
  }
  if (rank != player) {
    slot.awaited.store(0);
    slot.waits_for.store(player);
    return wait_for_stop(board, slot);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  if (part == "killed") ::raise(SIGKILL);
  if (part == "stops") ::raise(SIGSTOP);
  while (part == "hangs") rest();
  if (part == "crash") std::abort();
  if (part == "exit3") std::_Exit(3);
  if (part == "exit0") std::_Exit(0);
  if (part == "fails") board.fail(rank, FailureKind::run, "the disk is full");
  if (part == "refuses") board.fail(rank, FailureKind::user, "no such file: input.txt");
  return part == "refuses" ? 1 : 2;
}

int be_rank(const std::vector<std::string>& words) {
  const std::string& part = words[3];
  const int rank = world_rank_from_environment(), player = number(words[4]);
  if (part == "never_joins") {
    fmt::print(stderr, "cannot load a library\n");
    return 7;
  }
  if (part == "stops_early" && rank == player) ::raise(SIGSTOP);
  return play(join_launcher(rank), rank, part, player);
}

int launch(const std::vector<std::string>& words) {
  const int ranks = number(words[2]);
  RankBoard board = RankBoard::create(ranks);
  SupervisedRun run{.board = board, .starter = kRankStarter};
  if (words[5] == "forks") {
    run.body = [&] {
      return start_ranks_here(
          ranks, [&] { return be_rank(words); }, &board);
    };
  } else {
    RankCommand command = starter_command(ranks, words);
    run.command = command.words;
    run.environment = command.environment;
  }
  receive_stop_signals();
  // It stands for OpenMP's threads, which must not be the ones that a signal interrupts.
  std::thread([] {
    while (true) rest();
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
    return start_ranks_here(number(words[2]), [&] { return be_rank(own); });
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
