// SharedRegions: the memory that a communicator's allocate() gave to the ranks of one machine. Each rank maps
// all of it, and finds where in it a tensor lies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/rendezvous/peers.h"
#include "runtime/comm/shared/shared_group.h"
#include "runtime/core/memory.h"

namespace dstrain {

class SharedRegions {
 public:
  // Collective over `comm`. Returns this rank's part of a new region; the ranks of `group`, those of this
  // machine, map one another's parts. If one rank is refused memory, throws RunError on every rank.
  Memory allocate(Communicator& comm, const SharedGroup& group, const Peers& peers, int64_t bytes,
                  const std::string& what);

  // Returns where `bytes` at `data` lie: in a region, or TensorPlace::kStaged.
  TensorPlace place_of(const std::byte* data, int64_t bytes) const;

  // Returns where this rank has mapped a place in the `local`-th rank's part of a region.
  std::byte* address(const TensorPlace& place, int local) const {
    return regions_[static_cast<size_t>(place.region)].bases[static_cast<size_t>(local)] +
           place.offset;
  }

 private:
  // One allocation.
  struct Region {
    std::weak_ptr<const void> life;  // of this rank's part
    const std::byte* own = nullptr;
    int64_t bytes = 0;              // of this rank's part
    std::vector<std::byte*> bases;  // by rank of the machine: where its part is mapped here
    std::vector<Memory> mapped;
  };
  std::vector<Region> regions_;
};

}  // namespace dstrain
