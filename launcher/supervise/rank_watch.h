// RankWatch: watches the ranks of a run on all its hosts and finds the root cause of a failure. Invariant: the root
// cause, once chosen, does not change; ranks that end because they are being stopped are never the root cause.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/root_cause.h"

namespace dstrain {

class RankWatch {
 public:
  RankWatch(std::vector<std::unique_ptr<HostView>> hosts, const Timeouts& timeouts);

  // Updates the reports of all hosts.
  void update();

  // Returns whether there is a fault.
  bool has_fault() const;
  // Returns whether the root cause is probably not reported yet: see root_cause.h.
  bool only_peer_failures() const;
  // Chooses the root cause, if there is a fault and none is chosen.
  void choose_root_cause();

  bool has_joined(int rank) const;
  // Returns whether all ranks run.
  bool all_running() const;
  bool any_alive() const;
  void kill_all() const;  // SIGKILL
  void request_stop(int signal) const;
  void request_trace() const;
  void forward_output(const HostView::OutputSink& sink) const;
  // Releases all hosts. ended() returns whether that is done.
  void end() const;
  bool ended() const;

  // Returns whether all ranks are done.
  bool all_done() const { return first_unfinished().empty(); }
  // Returns the name of the first rank that is not done, "rank 1 (pid 4711)"; empty if all are.
  std::string first_unfinished() const;
  // Returns the signal because of which the run stopped early; 0 if it did not.
  int stopped() const;

  const std::optional<RootCause>& root_cause() const { return root_cause_; }
  bool root_cause_vanished() const {
    return root_cause_ && root_cause_->kind == RootCause::Kind::vanished;
  }
  // Returns whether the root cause is the end of an agent. Its guard has then ended what else there is on its host.
  bool root_cause_is_agent() const {
    return root_cause_ && root_cause_->kind == RootCause::Kind::host_lost &&
           root_cause_->loss == Loss::agent;
  }
  // Returns whether the root cause may follow from the end of mpirun, of its daemon or of its connection to a host.
  bool root_cause_follows_starters() const {
    return root_cause_ && (root_cause_->kind == RootCause::Kind::vanished ||
                           root_cause_->kind == RootCause::Kind::starter_ended);
  }
  // Returns whether the kernel has killed a process of the run because memory ran out.
  bool any_out_of_memory() const;
  std::vector<std::string> lost_hosts() const;
  // Returns the exit status that follows from the root cause.
  int exit_status() const;
  // Describes the root cause, and adds whether its host ran out of memory. `ending`: how a vanished rank ended if its
  // wait status is unknown. A root cause must have been chosen.
  std::string report(const std::string& ending) const;
  // Returns what hosts have run out of, for the end of an error that nothing else explains; empty if nothing.
  std::string lacks() const;

 private:
  std::vector<HostReport> reports() const;
  std::optional<int> wait_status_of(int rank) const;
  Timeouts timeouts() const;

  std::vector<std::unique_ptr<HostView>> hosts_;
  Timeouts timeouts_;
  int64_t last_update_ns_ = 0;
  // After this process was suspended it does not know how long others were silent: no timeout applies before this time.
  int64_t lenient_until_ns_ = 0;
  std::optional<RootCause> root_cause_;
};

}  // namespace dstrain
