// BoardView: the host that this process runs on, through its rank board and the kernel. Stands on the
// board and on comm's PeerProcess.
#pragma once

#include <vector>

#include "launcher/supervise/host_view.h"
#include "runtime/comm/rendezvous/peer_process.h"

namespace dstrain {

class BoardView final : public HostView {
 public:
  // Watches the slots of `ranks`, and processes of these ranks that have not joined and have `mark` in
  // their environment (see find_ranks.h; empty: there are none). `name`: of the host, for messages; empty
  // where it is the only one. `board` outlives the view.
  BoardView(const RankBoard& board, std::span<const int> ranks, std::string mark,
            std::string name = "");

  const std::string& name() const override { return name_; }
  void look(bool closely) override;
  std::span<const RankReport> ranks() const override { return reports_; }
  const std::string& lost() const override { return lost_; }
  int64_t lost_since() const override { return 0; }
  void request_stop(int signal) override { board_.request_stop(signal); }
  void kill_all() override;
  int stopped() const override { return board_.stopped(); }
  int64_t out_of_memory_kills() const override;

 private:
  void look_for_absent(int64_t now);
  void meet(size_t i, int64_t pid, int64_t now);
  void look_at(size_t i, int64_t now);

  const RankBoard& board_;
  std::string mark_;
  std::string name_;
  std::string lost_;  // never: it stays empty
  std::vector<RankReport> reports_;
  std::vector<PeerProcess> processes_;
  std::vector<int64_t> progress_;
  int64_t last_look_ns_ = 0;
  int64_t last_state_look_ns_ = 0;
  int64_t last_search_ns_;
  bool look_at_states_ = false;
  int64_t kills_before_;
};

// Ranks 0 ... count-1.
std::vector<int> first_ranks(int count);

}  // namespace dstrain
