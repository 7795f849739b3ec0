// Supervisor: starts the ranks of a run with one command and watches them, on all hosts, until all are gone. It
// forwards what they write, turns SIGINT and SIGTERM into a stop request on the board, and when a rank
// fails or vanishes stops everything and names the first culprit. Stands on child.h, rank_link.h and
// the board. Invariant: when run() returns, no process that it started is alive.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/ranks/child.h"
#include "launcher/supervise/culprit.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

struct RunReport {
  int exit_status = 0;                    // as in the contract: 0, 1, 2, or 128 + n
  std::string error;                      // who failed, where and why; empty: nobody
  std::vector<std::string> lost_hosts{};  // that did not answer any more
};

// What a supervisor is given.
struct SupervisedRun {
  // Takes stop requests; where there are no `hosts` all ranks run here and join it.
  RankBoard& board;
  std::vector<std::unique_ptr<HostView>> hosts{};
  std::vector<std::string> host_of_rank{};  // with `hosts`: where each rank runs
  std::vector<std::string> command{};       // starts the ranks (mpirun and its words)
  std::function<int()> body{};     // where there is no command: does so in a fork of this process
  std::string starter = "mpirun";  // what messages call it
  std::string starter_log{};       // a file for what it says itself; empty: errors hold all of it
  Environment environment{};       // what it needs besides this process's
  int output = 1, error = 2;       // the descriptors that get what ranks write
  bool time_stamps = false;        // before each line that ranks write
  Patience patience{};             // how long ranks may be silent
};

class Supervisor {
 public:
  explicit Supervisor(SupervisedRun run) : run_(std::move(run)) {}

  // Answers SIGINT and SIGTERM while it runs: a first signal asks the ranks to stop after their step, a
  // second one stops them at once. Throws RunError where the command cannot be started. Called once.
  RunReport run();

 private:
  SupervisedRun run_;
};

}  // namespace dstrain
