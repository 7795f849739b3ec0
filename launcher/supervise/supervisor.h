// Supervisor: starts the ranks of a run with one command and watches them, on all hosts, until all have ended. It
// forwards what they write, turns stop signals into stop requests on the board, and when a rank fails or vanishes, ends
// all ranks and reports the root cause. Invariant: when run() returns, no process that it started is alive.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/process/child.h"
#include "launcher/supervise/root_cause.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

// The result of a supervised run: its exit status, and the root cause if it failed.
struct RunReport {
  int exit_status = 0;                    // 0, 1, 2, or 128 + n
  std::string error;                      // which rank failed, where and why; empty: none
  std::vector<std::string> lost_hosts{};  // hosts that stopped answering
  std::string stop_line{};                // of a run that a stop signal ended at once (stop_text.h)
};

// The description of a run for a supervisor: the ranks to start and watch, the command that starts them, and where
// their output goes.
struct SupervisedRun {
  // Holds stop requests. Without `hosts` all ranks run on this machine and join this board.
  RankBoard& board;
  std::vector<std::unique_ptr<HostView>> hosts{};
  std::vector<std::string> host_of_rank{};  // with `hosts`: the host of each rank
  std::vector<std::string> command{};       // starts the ranks (mpirun and its words)
  std::function<int()>
      body{};  // starts the ranks if there is no command, in a fork of this process
  std::string starter = "mpirun";  // the name of command or body in messages
  std::string starter_log{};  // a file for what it writes itself; empty: errors quote all of it
  Environment environment{};  // added to this process's environment
  int output = 1, error = 2;  // the descriptors to which ranks' output is forwarded
  bool time_stamps = false;   // put before each line of the ranks
  Timeouts timeouts{};        // after which ranks count as hung
};

class Supervisor {
 public:
  explicit Supervisor(SupervisedRun run) : run_(std::move(run)) {}

  // Must be called once. Handles stop signals meanwhile: the first asks the ranks to stop after their step, a second
  // one stops them at once. Throws RunError if the command cannot be started.
  RunReport run();

 private:
  SupervisedRun run_;
};

}  // namespace dstrain
