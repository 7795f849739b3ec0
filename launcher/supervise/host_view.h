// HostView: what one host of a run looks like from the process that supervises: its ranks, what they
// do, whether the host itself still answers. Behind it stands a rank board of this machine, or an agent
// that watches one elsewhere. All times are monotonic_ns() of the supervising process.
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

// One rank as it was last seen.
struct RankReport {
  int rank = 0;                    // in the world
  int pid = 0;                     // 0: nothing is known of it yet
  bool gone = false;               // its process has ended
  std::optional<int> wait_status;  // how, as waitpid() says it, where that is known
  RankState state = RankState::absent;
  int64_t step = 0;
  std::string instruction;      // "" between two
  int waits_for = -1;           // the rank that it waits for
  std::string waits_in;         // the collective in which it does
  int64_t moved_ns = 0;         // when it last did something, or was first expected
  int64_t alive_ns = 0;         // when it was last seen alive
  int64_t suspended_since = 0;  // since when its process is stopped; 0: it is not
  FailureKind failure_kind = FailureKind::none;
  int64_t failure_ns = 0;
  std::string failure;  // its own words

  bool joined() const { return pid != 0; }
  bool failed() const { return failure_kind != FailureKind::none; }
  // Ended without being done and without a word.
  bool vanished() const { return gone && state != RankState::done && !failed(); }
};

// What starts the ranks of a host: mpirun's daemon (orted), where there is one.
struct StarterReport {
  int pid = 0;                  // 0: it was not seen
  bool gone = false;            // its process has ended
  int64_t alive_ns = 0;         // when it was last seen alive
  int64_t suspended_since = 0;  // since when it is stopped; 0: it is not
  std::string awaits;  // the peer whose answer it, or a rank that begins, waits for; may be empty
  int64_t awaits_since = 0;
};

// What is lost where a host does not answer any more: the host, only the agent on it, or this machine's network.
enum class Loss : uint8_t { host, agent, own_network };

class HostView {
 public:
  virtual ~HostView() = default;

  // For messages: "node2"; empty: this machine, the only one of the run.
  virtual const std::string& name() const = 0;
  // Brings the report up to date. `closely`: instructions and messages too, which takes longer.
  virtual void look(bool closely) = 0;
  virtual std::span<const RankReport> ranks() const = 0;
  virtual const StarterReport& starter() const {
    static const StarterReport none;
    return none;
  }
  // Why the host does not answer any more ("no word from it for 5 s"), and since when; empty: it does.
  virtual const std::string& lost() const = 0;
  virtual int64_t lost_since() const = 0;
  virtual Loss loss() const { return Loss::host; }

  // Asks the host's ranks to stop after a step, because of `signal`; kills them (SIGKILL).
  virtual void request_stop(int signal) = 0;
  virtual void kill_all() = 0;
  // The signal for which the run ended early, its files written; 0: it did not.
  virtual int stopped() const = 0;
  // Processes that the kernel has killed since the run began because memory ran out.
  virtual int64_t out_of_memory_kills() const = 0;

  // What ranks wrote, where it comes through the view; nothing where it has a way of its own.
  using OutputTaker = std::function<void(int rank, StandardStream stream, std::string_view bytes)>;
  virtual void take_output(const OutputTaker&) {}
  // Begins to let go of the host: nothing of the run is left there once ended() says so, after some
  // more looks.
  virtual void end() {}
  virtual bool ended() const { return true; }
};

}  // namespace dstrain
