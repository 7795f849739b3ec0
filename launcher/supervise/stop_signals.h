// Stop signals: SIGINT, SIGTERM, SIGUSR1 (a scheduler's notice that a job's time is nearly over) and SIGHUP (the
// terminal was closed). One thread receives them; all other threads have them blocked, so no handler ever runs on
// the stack of a thread that computes, whatever a library has put there. Stands on the board.
#pragma once

#include "runtime/core/rank_board.h"

namespace dstrain {

// Blocks the stop signals in the calling thread, which every thread that it starts from then on inherits, and
// starts the thread that receives them. While no StopSignals exists a signal has its usual effect. A process that
// trains calls it before any other thread exists. Further calls have no effect.
void receive_stop_signals();

// Unblocks the stop signals in the calling thread. For a process that is about to become another program.
void release_stop_signals();

// Turns stop signals into stop requests of a run for as long as it lives. The first signal asks the run to stop
// after its step; a second one ends this process at once, or is remembered for a supervisor to act on. SIGHUP never
// counts as the second, because a terminal that closes may send it twice, and is ignored where nohup ignored it.
// Calls receive_stop_signals(). At most one exists at a time.
class StopSignals {
 public:
  enum class Note { none, on_standard_error };  // whether the first signal is answered with a line
  // ends_process_later: as ends_process, but a signal that comes within a second of the first counts as the first
  // again, because whoever starts ranks may signal both a process and its group.
  enum class Second { ends_process, ends_process_later, is_remembered };

  // The board outlives it.
  StopSignals(const RankBoard& board, Note note, Second second);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // Returns the second signal where it is remembered; 0 where none came.
  int second() const;
};

}  // namespace dstrain
