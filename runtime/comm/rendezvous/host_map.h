// HostMap: which ranks share a machine. Pure: no process, no network. Hosts are numbered by their
// first ranks, so host 0 is rank 0's.
#pragma once

#include <span>
#include <vector>

namespace dstrain {

class HostMap {
 public:
  // `labels`, by rank: equal where ranks share a machine. At least one rank.
  explicit HostMap(std::span<const int> labels);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_of_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  // Place of a rank among those of its host.
  int index_of(int rank) const { return index_of_[static_cast<size_t>(rank)]; }
  // Ascending.
  std::span<const int> ranks_of(int host) const { return ranks_of_[static_cast<size_t>(host)]; }
  int ranks_on(int host) const { return static_cast<int>(ranks_of(host).size()); }
  // Whether each host's ranks follow one another.
  bool consecutive() const { return consecutive_; }

  // What travels between hosts is dealt to lanes, as many as the largest host has ranks; each rank of a
  // smaller host serves several.
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
