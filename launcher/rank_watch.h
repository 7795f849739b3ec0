// RankWatch: which ranks of a board live, and whose fault it is when one does not. Stands on the board
// and on comm's PeerProcess. Invariant: the culprit, once chosen, stays; ranks that end because they
// are being stopped are never culprits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/peer_process.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

class RankWatch {
 public:
  explicit RankWatch(const RankBoard& board);

  // Looks at all ranks once. Until a culprit is chosen it remembers the first rank that ended without
  // being done and without saying why.
  void look();

  // Whether something has gone wrong that a culprit can be chosen for.
  bool trouble() const { return vanished_.has_value() || board_.first_failure().has_value(); }
  // Chooses the culprit: a rank that vanished, as its peers fail for its sake; else the first failure.
  void choose_culprit();

  bool any_alive() const;
  void kill_all() const;  // SIGKILL

  // Whether each rank has said that it is done.
  bool all_done() const;
  // "rank 1 (pid 4711)" of the first that is not done; every rank is, where it is empty.
  std::string first_unfinished() const;

  // The exit status and the text for the chosen culprit, or what first_failure says. `ending`: how a
  // vanished rank ended ("was killed by signal 9 (Killed)").
  int exit_status() const;
  std::string report(const std::string& ending) const;
  bool has_culprit() const { return culprit_.has_value(); }
  int culprit() const { return *culprit_; }
  bool culprit_vanished() const { return culprit_ && *culprit_ == vanished_; }

 private:
  struct Rank {
    bool joined = false;
    bool gone = false;
    PeerProcess process;
  };

  const RankBoard& board_;
  std::vector<Rank> ranks_;
  std::optional<int> vanished_;
  std::optional<int> culprit_;
};

}  // namespace dstrain
