// PartRendezvous: the rendezvous of some ranks of a communicator that make one of their own. The records travel by the
// operations of the communicator that they have.
#pragma once

#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/rendezvous/rendezvous.h"

namespace dstrain {

class PartRendezvous final : public Rendezvous {
 public:
  // `ranks`: numbers in `parent`, ascending, its own among them; `world_ranks`: the same ranks in the world.
  // Every rank of `parent` must make one, and gather as often as the others. `parent` outlives this object.
  PartRendezvous(Communicator& parent, std::span<const int> ranks, std::vector<int> world_ranks);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  int world_rank(int rank) const override { return world_ranks_[static_cast<size_t>(rank)]; }
  // Returns the number in the parent of a rank of the part.
  int parent_rank(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  // Collective over the parent. Returns a rank of `ranks` that came with another list, or -1.
  int odd_rank();
  void leave() override {}

 private:
  // A list of ranks, as the others learn of it.
  struct PartList {
    int32_t first = 0, size = 0;
    uint64_t digest = 0;
    bool operator==(const PartList&) const = default;
  };

  void gather_bytes(const void* mine, void* all, size_t bytes) override;
  std::vector<double> gather_all(const void* mine, size_t bytes);

  Communicator& parent_;
  std::vector<int> ranks_, world_ranks_;
  int rank_ = 0;
};

}  // namespace dstrain
