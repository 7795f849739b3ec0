// StopSignals: SIGINT and SIGTERM, for as long as it lives. The first asks the run to stop after its
// step; a second one ends this process at once, or is remembered for a supervisor to act on. Handlers,
// not a signal mask: other threads (OpenMP's) would not have the mask. Stands on the board. Invariant:
// at most one exists at a time; the handlers of before are back when it goes.
#pragma once

#include <csignal>

#include "runtime/core/rank_board.h"

namespace dstrain {

class StopSignals {
 public:
  enum class Note { none, on_standard_error };  // whether the first signal is answered with a line
  enum class Second { ends_process, is_remembered };

  StopSignals(const RankBoard& board, Note note, Second second);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // The second signal, where it is remembered; 0: none came.
  int second() const;

 private:
  struct sigaction old_interrupt_ {};
  struct sigaction old_terminate_ {};
};

}  // namespace dstrain
