// Supervisor: starts the ranks of a run with one command and watches them until all are gone. It
// forwards what they write, turns SIGINT and SIGTERM into a stop request on the board, and when a rank
// fails or vanishes stops everything and names the first culprit. Stands on child.h, rank_link.h and
// the board. Invariant: when run() returns, no process that it started is alive.
#pragma once

#include <string>
#include <vector>

#include "launcher/child.h"
#include "launcher/supervise/culprit.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

struct RunReport {
  int exit_status = 0;  // as in the contract: 0, 1, 2, or 128 + n
  std::string error;    // who failed, where and why; empty: nobody
};

class Supervisor {
 public:
  // `command` starts the ranks (mpirun and its words), each of which joins the board. `output`: the
  // descriptor that gets what ranks write. `patience`: how long ranks may be silent.
  Supervisor(RankBoard& board, std::vector<std::string> command, Environment environment,
             int output, const Patience& patience = {});

  // Answers SIGINT and SIGTERM while it runs: a first signal asks the ranks to stop after their step, a
  // second one stops them at once. Throws RunError where the command cannot be started.
  RunReport run();

 private:
  RankBoard& board_;
  std::vector<std::string> command_;
  Environment environment_;
  int output_;
  Patience patience_;
};

}  // namespace dstrain
