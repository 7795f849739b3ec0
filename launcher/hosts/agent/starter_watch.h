// StarterWatch: watches the process that starts the ranks of this host. In a run on several hosts this is mpirun's
// daemon orted. The report says whether the process exists, has ended, is stopped, or waits for a connection.
#pragma once

#include <span>
#include <string>

#include "launcher/supervise/host_view.h"
#include "runtime/comm/rendezvous/peer_process.h"

namespace dstrain {

class StarterWatch {
 public:
  explicit StarterWatch(std::string run) : run_(std::move(run)) {}

  // Updates the report. `ranks`: the reports about this host's ranks. Until all of them run, searches for the daemon,
  // and for connections that are not established, once a second and when a rank has joined.
  void update(std::span<const RankReport> ranks);
  const StarterReport& report() const { return report_; }

 private:
  void search(std::span<const RankReport> ranks, int64_t now);
  // From now on reports on the first of the processes for which `is_right` holds, if there is one.
  void take_first(std::span<const pid_t> processes, bool (*is_right)(pid_t));

  std::string run_;
  PeerProcess process_;
  StarterReport report_;
  bool found_ = false;         // a rank's parent was looked at
  std::ptrdiff_t joined_ = 0;  // how many ranks had joined at the last search
  int64_t last_search_ns_ = 0, last_state_ns_ = 0, last_update_ns_ = 0;
};

}  // namespace dstrain
