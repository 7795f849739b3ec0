// StarterWatch: what starts ranks on this host for a run on several, mpirun's daemon (orted): whether it is
// there, lives, is stopped, or waits for a connection. Stands on run_place.h, tcp_table.h and /proc.
#pragma once

#include <span>
#include <string>

#include "launcher/supervise/host_view.h"
#include "runtime/comm/rendezvous/peer_process.h"

namespace dstrain {

class StarterWatch {
 public:
  explicit StarterWatch(std::string run) : run_(std::move(run)) {}

  // Brings the report up to date; `ranks`: what is known of those of this host. The daemon is looked for,
  // and connections are looked at, once a second and only until all ranks have begun to run.
  void look(std::span<const RankReport> ranks);
  const StarterReport& report() const { return report_; }

 private:
  void search(std::span<const RankReport> ranks, int64_t now);

  std::string run_;
  PeerProcess process_;
  StarterReport report_;
  bool found_ = false;  // what started a rank
  bool looked_at_ranks_ = false;
  int64_t last_search_ns_ = 0, last_state_ns_ = 0, last_look_ns_ = 0;
};

}  // namespace dstrain
