// HostMap: which ranks share a machine. Pure. Hosts are numbered by their first ranks, so host 0 is rank
// 0's. What travels between hosts is divided among lanes. There are as many lanes as the largest host has
// ranks; one rank of each host serves a lane, and a rank of a smaller host serves several.
#pragma once

#include <span>
#include <vector>

namespace dstrain {

class HostMap {
 public:
  // `labels`: one per rank, equal if the ranks share a machine. Throws InternalError if there is none.
  explicit HostMap(std::span<const int> labels);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_of_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  // A rank's index among those of its host.
  int index_of(int rank) const { return index_of_[static_cast<size_t>(rank)]; }
  // The ranks of a host, ascending.
  std::span<const int> ranks_of(int host) const { return ranks_of_[static_cast<size_t>(host)]; }
  int ranks_on(int host) const { return static_cast<int>(ranks_of(host).size()); }
  // Whether the ranks of each host are consecutive.
  bool consecutive() const { return consecutive_; }

  int lanes() const { return lanes_; }
  int lane_rank(int host, int lane) const {
    return ranks_of(host)[static_cast<size_t>(lane % ranks_on(host))];
  }

 private:
  std::vector<int> host_of_;
  std::vector<int> index_of_;
  std::vector<std::vector<int>> ranks_of_;
  bool consecutive_ = true;
  int lanes_ = 0;
};

}  // namespace dstrain
