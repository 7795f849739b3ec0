// The signals to a run. Stop signals are SIGINT, SIGTERM, SIGUSR1 (a scheduler announces the end of a job's time) and
// SIGHUP (the terminal was closed). SIGUSR2 asks for a trace of the next steps, and ends no process that receives signals
// here. One thread receives them. All other threads have them blocked, so that no handler ever runs on the stack of a
// thread that computes, for which a library may have made no room.
#pragma once

#include <csignal>
#include <functional>

#include "runtime/core/rank_board.h"

namespace dstrain {

// Returns the stop signals and SIGUSR2.
sigset_t signals_to_runs();

// Blocks the stop signals and SIGUSR2 in the calling thread and in all threads that it starts from then on, and starts
// the thread that receives them. While no StopSignals exists a stop signal has its default action, and SIGUSR2 waits for
// one. A process that trains must call this before any other thread exists. Further calls have no effect.
void receive_stop_signals();

// From now on a stop signal that ends this process because there was no StopSignals yet says so on standard error
// (stop_text.h).
void say_what_stop_signals_end();

// Makes this process, and those that it starts, ignore the stop signals and SIGUSR2. Async-signal-safe.
void ignore_stop_signals();

// Unblocks the stop signals in the calling thread. A process calls this before exec makes it another program. SIGUSR2
// stays blocked, or it would end that program before it receives signals.
void release_stop_signals();

// Does what this process does about a stop signal of its own, for one that another process of the run has received and
// reported. `count`: how many that process has received by now. Signals to several processes of a run are often one
// (`pkill dstrain`), so only what is the second at one of them counts as the second.
void take_stop_signal(int number, int count);

// Does what this process does about a SIGUSR2 of its own, for one that another process of the run has received.
void take_trace_signal();

// While an object of this class exists, it turns stop signals into stop requests on a board, and SIGUSR2 into a request
// for a trace. The first stop signal asks the run to stop after its step. A second one ends this process, or is
// remembered for a supervisor to act on. SIGHUP never counts as the second, because a terminal that closes may send it
// twice, and is ignored if nohup ignored it. Calls receive_stop_signals(). At most one exists at a time.
class StopSignals {
 public:
  // Whether the first signal is answered with a line on standard error.
  enum class Note { none, on_standard_error };
  // What a second signal does. `ends_process`: it ends this process. `ends_process_later`: the same, but a signal
  // within a second after the first does not count, because mpirun and others may send one signal both to a process and
  // to its group. `is_remembered`: second() returns it.
  enum class Second { ends_process, ends_process_later, is_remembered };

  // `can_finish`: called once, at the first signal; returns whether the ranks can finish a step. Without it they can.
  // The board, and what `can_finish` uses, must outlive this object.
  StopSignals(const RankBoard& board, Note note, Second second,
              std::function<bool()> can_finish = {});
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // Returns the second signal if it is remembered and has come, else 0.
  int second() const;
  // Returns the first signal if it has come while the ranks could not finish a step, else 0.
  int at_once() const;
};

// While an object of this class exists, `act` is called before a stop signal ends this process because no StopSignals
// exists. It is called in the thread that receives signals. At most one exists at a time.
class BeforeSignalEnds {
 public:
  explicit BeforeSignalEnds(std::function<void(int number)> act);
  BeforeSignalEnds(const BeforeSignalEnds&) = delete;
  BeforeSignalEnds& operator=(const BeforeSignalEnds&) = delete;
  ~BeforeSignalEnds();
};

}  // namespace dstrain
