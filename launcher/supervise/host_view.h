// HostView: one host of a run, as the supervising process sees it: its ranks, and whether it still answers. The reports
// come from a rank board of this machine, an agent or a watcher. All times are monotonic_ns() of the supervising
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "launcher/output/standard_stream.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

// The last known state of a rank.
struct RankReport {
  int rank = 0;                    // in the world
  int pid = 0;                     // 0: unknown
  bool gone = false;               // its process has ended
  std::optional<int> wait_status;  // of waitpid(), if it is known
  RankState state = RankState::absent;
  int64_t step = 0;
  std::string instruction;      // the present one; "" between two
  int waits_for = -1;           // the rank that it waits for; -1: none
  std::string waits_in;         // the collective in which it waits
  int64_t moved_ns = 0;         // when it last made progress, or was first expected
  int64_t alive_ns = 0;         // when it was last seen alive
  int64_t suspended_since = 0;  // since when its process is stopped (SIGSTOP); 0: it is not
  FailureKind failure_kind = FailureKind::none;
  int64_t failure_ns = 0;
  std::string failure;  // the error that it reported

  bool joined() const { return pid != 0; }
  bool alive() const { return joined() && !gone; }
  bool failed() const { return failure_kind != FailureKind::none; }
  // It ended before it was done, and reported no error.
  bool vanished() const { return gone && state != RankState::done && !failed(); }
};

// The last known state of the process that starts the ranks of a host, if it is mpirun's daemon orted.
struct StarterReport {
  int pid = 0;                  // 0: it was not found
  bool gone = false;            // its process has ended
  int64_t alive_ns = 0;         // when it was last seen alive
  int64_t suspended_since = 0;  // since when it is stopped; 0: it is not
  std::string
      awaits;  // the peer to which it, or a rank that starts, is still connecting; may be empty
  int64_t awaits_since = 0;
};

// The part that has failed if a host does not answer any more: the host, the agent on it, or this machine's network.
enum class Loss : uint8_t { host, agent, own_network };

class HostView {
 public:
  virtual ~HostView() = default;

  // The name for messages; empty if the host is this machine and the only one.
  virtual const std::string& name() const = 0;
  // Updates the reports. `closely`: with instructions and error texts, which takes longer.
  virtual void update(bool closely) = 0;
  virtual std::span<const RankReport> ranks() const = 0;
  virtual const StarterReport& starter() const {
    static const StarterReport none;
    return none;
  }
  // Returns what the host has run out of, for the end of an error: "/tmp there had 0 bytes left: ..."; "" if nothing.
  virtual const std::string& lack() const {
    static const std::string none;
    return none;
  }
  // Returns why the host counts as lost ("no word from it for 5 s"); "" as long as it answers.
  virtual const std::string& lost() const = 0;
  // Returns since when a lost host is lost.
  virtual int64_t lost_since() const = 0;
  // Returns what of a lost host has failed.
  virtual Loss loss() const { return Loss::host; }

  // Asks the host's ranks to stop after their step, because of `signal`.
  virtual void request_stop(int signal) = 0;
  // Asks the host's ranks for a trace of the next steps.
  virtual void request_trace() = 0;
  // Kills the host's ranks (SIGKILL).
  virtual void kill_all() = 0;
  // Returns the signal because of which the run has stopped before its last step, with its files written, as this host
  // knows; 0: it has not.
  virtual int stopped() const = 0;
  // Returns how many processes in the ranks' cgroups the kernel has killed since the run began, because memory ran out.
  virtual int64_t out_of_memory_kills() const = 0;

  // Gives the function the ranks' output that has come through this view since the last call. Does nothing if it takes
  // another way.
  using OutputSink = std::function<void(int rank, StandardStream stream, std::string_view bytes)>;
  virtual void forward_output(const OutputSink&) {}
  // Starts to release the host. The caller must keep calling update() until ended() returns true; nothing of the run is
  // left on the host then.
  virtual void end() {}
  virtual bool ended() const { return true; }
};

}  // namespace dstrain
