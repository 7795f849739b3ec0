// RankWatch: which ranks of a run live, on all its hosts, and whose fault it is when one does not.
// Stands on HostView and culprit.h. Invariant: the culprit, once chosen, stays; ranks that end because
// they are being stopped are never culprits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/culprit.h"

namespace dstrain {

class RankWatch {
 public:
  RankWatch(std::vector<std::unique_ptr<HostView>> hosts, const Patience& patience);

  // Looks at all ranks once.
  void look();

  // Whether something has gone wrong that a culprit can be chosen for.
  bool trouble() const;
  // Whether a culprit may well be named better in a moment: see only_complaints().
  bool only_complaints() const;
  // Chooses the culprit from a close look, if there is one yet.
  void choose_culprit();

  bool has_joined(int rank) const;
  // Whether each rank has begun to run.
  bool all_begun() const;
  bool any_alive() const;
  void kill_all() const;  // SIGKILL
  void request_stop(int signal) const;
  void take_output(const HostView::OutputTaker& take) const;
  // Lets go of all hosts; ended() says when that is done.
  void end() const;
  bool ended() const;

  // Whether each rank has said that it is done.
  bool all_done() const { return first_unfinished().empty(); }
  // "rank 1 (pid 4711)" of the first that is not done; every rank is, where it is empty.
  std::string first_unfinished() const;
  // The signal for which the run ended early; 0: none.
  int stopped() const;

  const std::optional<Culprit>& culprit() const { return culprit_; }
  bool culprit_vanished() const { return culprit_ && culprit_->kind == Culprit::Kind::vanished; }
  std::vector<std::string> lost_hosts() const;
  // Of the contract, for the chosen culprit.
  int exit_status() const;
  // describe() of the culprit, with `ending` where nothing better is known, and whether its host ran
  // out of memory.
  std::string report(const std::string& ending) const;

 private:
  std::vector<HostReport> reports() const;
  std::optional<int> wait_status_of(int rank) const;
  Patience patience() const;

  std::vector<std::unique_ptr<HostView>> hosts_;
  Patience patience_;
  int64_t last_look_ns_ = 0;
  // Where this process was itself suspended it knows nothing of how long others were silent; from then
  // on it gives them a moment.
  int64_t lenient_until_ns_ = 0;
  std::optional<Culprit> culprit_;
};

}  // namespace dstrain
