// SharedRegions: the memory that the world's allocate() gave to the ranks of one machine. Each rank maps all of
// it, and finds where in it a tensor lies. RegionView: the same memory, as some of these ranks see it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/rendezvous/part_rendezvous.h"
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

// RegionView: the regions of the world as the ranks of one group see them; finds a peer's tensor in them.
class RegionView {
 public:
  RegionView() = default;
  // That of the world itself, whose ranks of this machine are in `group`. `regions` outlives this object.
  RegionView(const SharedRegions& regions, const SharedGroup& group);

  // Returns that of a part. `hosts`: of the communicator that this is the view of; `ranks`, `group`: of the
  // part.
  RegionView of_part(const HostMap& hosts, const PartRendezvous& ranks,
                     const SharedGroup& group) const;

  // As SharedRegions; `local`: the index of a rank in this view's group.
  TensorPlace place_of(const std::byte* data, int64_t bytes) const {
    return regions_->place_of(data, bytes);
  }
  std::byte* address(const TensorPlace& place, int local) const {
    return regions_->address(place, locals_[static_cast<size_t>(local)]);
  }

 private:
  const SharedRegions* regions_ = nullptr;
  std::vector<int> locals_;  // by index in the group: the index in the world's group
};

}  // namespace dstrain
