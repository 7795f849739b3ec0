// Finds the root cause of a failure of the run from the reports of all hosts. Pure.
//
// A rank that ended, stopped or failed for a reason of its own is a primary fault; one that failed because of another
// rank (peer failure) or has not moved for too long is a secondary one. The root cause is the earliest primary fault,
// or the one that its rank waited for; among faults at the same moment, a rank that vanished. If there are only
// secondary faults it is the rank at the end of the chain of waits.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/supervise/host_view.h"

namespace dstrain {

// The latest reports about one host, its ranks, and the process that starts them.
struct HostReport {
  std::string name;
  std::string lost;     // as HostView::lost(); empty: the host answers
  int64_t lost_ns = 0;  // as HostView::lost_since()
  std::span<const RankReport> ranks;
  StarterReport starter{};
  Loss loss = Loss::host;
};

// The times in nanoseconds after which a state counts as a fault.
struct Timeouts {
  int64_t instruction = 600'000'000'000;  // of a rank without progress
  int64_t suspended = 2'000'000'000;      // of a stopped process
  int64_t start = 60'000'000'000;         // while ranks start, without another one that has
};

// The fault that made the run fail, and the ranks that waited for the faulty rank.
struct RootCause {
  // What has happened to a rank, to a host, or to the process that starts ranks.
  enum class Kind { vanished, suspended, hung, failed, host_lost, starter_ended, starter_stopped };
  // The ranks that waited in the same collective.
  struct Waiting {
    std::string in;          // "all_reduce blocks.3"; may be empty
    std::vector<int> ranks;  // ascending
  };
  Kind kind = Kind::vanished;
  std::string host;              // empty: this machine, the only one
  std::string lost;              // host_lost: why
  Loss loss = Loss::host;        // host_lost: what is lost
  RankReport rank;               // unless the kind is host_lost or starter_*
  StarterReport starter;         // of the host
  double seconds = 0;            // how long it has been hung or suspended
  std::vector<Waiting> waiting;  // the ranks that waited for it
};

// Returns whether there is any fault.
bool any_fault(std::span<const HostReport> hosts, const Timeouts& timeouts, int64_t now);

// Returns whether all faults are peer failures, so that the root cause has not been reported yet.
bool only_peer_failures(std::span<const HostReport> hosts, const Timeouts& timeouts, int64_t now);

// Returns the root cause if there is any fault.
std::optional<RootCause> find_root_cause(std::span<const HostReport> hosts,
                                         const Timeouts& timeouts, int64_t now);

// Returns for example "rank 1 (pid 4711 on node2)".
std::string name_of(const RankReport& rank, const std::string& host);

// Describes a status of waitpid(): "was killed by signal 9 (Killed)", "ended by itself with exit status 3".
std::string ending_text(int wait_status);

// Returns one line: which rank, where, why, and which ranks waited for it in which instruction. `ending`: ending_text()
// of a rank that vanished. An error in the user's input is returned as it is.
std::string describe(const RootCause& root_cause, const std::string& ending);

}  // namespace dstrain
