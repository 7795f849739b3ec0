// StopSignals: SIGINT and SIGTERM of a process that is itself a rank. The first asks the run to stop
// after its step, a second one ends the process at once. Stands on the board. Invariant: at most one
// exists at a time; the handlers of before are back when it goes.
#pragma once

#include <csignal>

#include "runtime/core/rank_board.h"

namespace dstrain {

class StopSignals {
 public:
  enum class Note { none, on_standard_error };  // whether the first signal is answered with a line

  StopSignals(const RankBoard& board, Note note);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

 private:
  struct sigaction old_interrupt_ {};
  struct sigaction old_terminate_ {};
};

}  // namespace dstrain
