// Stop signals: SIGINT, SIGTERM, SIGUSR1 (a scheduler announces the end of a job's time) and SIGHUP (the terminal was
// closed). One thread receives them. All other threads have them blocked, so that no handler ever runs on the stack of
// a thread that computes, for which a library may have made no room.
#pragma once

#include "runtime/core/rank_board.h"

namespace dstrain {

// Blocks the stop signals in the calling thread and in all threads that it starts from then on, and starts the thread
// that receives them. While no StopSignals exists a signal has its default action. A process that trains must call
// this before any other thread exists. Further calls have no effect.
void receive_stop_signals();

// Unblocks the stop signals in the calling thread. A process calls this before exec makes it another program.
void release_stop_signals();

// Turns stop signals into stop requests on a board for as long as it exists. The first signal asks the run to stop
// after its step. A second one ends this process, or is remembered for a supervisor to act on. SIGHUP never counts as
// the second, because a terminal that closes may send it twice, and is ignored if nohup ignored it. Calls
// receive_stop_signals(). At most one exists at a time.
class StopSignals {
 public:
  enum class Note { none, on_standard_error };  // whether a line answers the first signal
  // ends_process_later: as ends_process, but a signal within a second of the first is taken for the same one, because
  // whoever starts ranks may signal both a process and its group.
  enum class Second { ends_process, ends_process_later, is_remembered };

  // The board must outlive this object.
  StopSignals(const RankBoard& board, Note note, Second second);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // Returns the second signal if it is remembered and has come, else 0.
  int second() const;
};

}  // namespace dstrain
