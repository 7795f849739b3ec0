// StopSignals: SIGINT, SIGTERM and SIGUSR1 (with which schedulers say that a job's time is nearly
// over), for as long as it lives. The first asks the run to stop after its
// step; a second one ends this process at once, or is remembered for a supervisor to act on. Handlers,
// not a signal mask: other threads (OpenMP's) would not have the mask. Stands on the board. Invariant:
// at most one exists at a time; the handlers of before are back when it goes.
#pragma once

#include <array>
#include <csignal>

#include "runtime/core/rank_board.h"

namespace dstrain {

class StopSignals {
 public:
  enum class Note { none, on_standard_error };  // whether the first signal is answered with a line
  // ends_process_later: as ends_process, but one that comes within a second of the first is the first
  // again. Who starts ranks may signal a process and the group it is in.
  enum class Second { ends_process, ends_process_later, is_remembered };

  StopSignals(const RankBoard& board, Note note, Second second);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // The second signal, where it is remembered; 0: none came.
  int second() const;

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGUSR1};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace dstrain
