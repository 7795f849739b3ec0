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
  // and for connections that are not established, once a second.
  void update(std::span<const RankReport> ranks);
  const StarterReport& report() const { return report_; }

 private:
  void search(std::span<const RankReport> ranks, int64_t now);
  // Reports the first daemon that lives among `processes`, if there is one.
  void find_daemon(std::span<const pid_t> processes);

  std::string run_;
  PeerProcess process_;
  StarterReport report_;
  bool found_ = false;  // a rank's parent was looked at
  bool searched_all_ranks_ = false;
  int64_t last_search_ns_ = 0, last_state_ns_ = 0, last_update_ns_ = 0;
};

}  // namespace dstrain
