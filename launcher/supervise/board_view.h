// BoardView: the host of this process, as its rank board and the kernel show it.
#pragma once

#include <filesystem>
#include <map>
#include <vector>

#include "launcher/supervise/host_view.h"
#include "runtime/comm/rendezvous/peer_process.h"

namespace dstrain {

class BoardView final : public HostView {
 public:
  // Watches the slots of `ranks`. Ranks that have not joined are found by `mark` in their environment (find_ranks.h),
  // unless it is empty. `name`: of the host, for messages; empty if it is the only one. `board` must outlive this
  // object.
  BoardView(const RankBoard& board, std::span<const int> ranks, std::string mark,
            std::string name = "");

  const std::string& name() const override { return name_; }
  void update(bool closely) override;
  std::span<const RankReport> ranks() const override { return reports_; }
  const std::string& lost() const override { return lost_; }
  int64_t lost_since() const override { return 0; }
  void request_stop(int signal) override { board_.request_stop(signal); }
  void request_trace() override { board_.request_trace(); }
  void kill_all() override;
  int stopped() const override { return board_.stopped(); }
  int64_t out_of_memory_kills() const override;

 private:
  void find_absent_ranks(int64_t now);
  void set_process(size_t i, int64_t pid, int64_t now);
  void update_rank(size_t i, int64_t now);
  void find_kill_counter(pid_t pid);

  const RankBoard& board_;
  std::string mark_;
  std::string name_;
  std::string lost_;  // always empty
  std::vector<RankReport> reports_;
  std::vector<PeerProcess> processes_;
  std::vector<int64_t> progress_;
  int64_t last_update_ns_ = 0;
  int64_t last_state_check_ns_ = 0;
  int64_t last_search_ns_;
  bool check_states_ = false;
  // The files that count kills in the cgroups of the ranks, and their numbers when they were first read.
  std::map<std::filesystem::path, int64_t> kills_before_;
};

}  // namespace dstrain
