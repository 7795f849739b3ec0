// SharedRegions: the memory that allocate() gave to the ranks of one machine, mapped in all of them, and
// where in it a tensor lies.
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
  // Collective over `comm`, whose ranks `group` joins on this machine. Throws RunError, on every rank
  // of `comm`, where one of them is refused memory.
  Memory allocate(Communicator& comm, const SharedGroup& group, const Peers& peers, int64_t bytes,
                  const std::string& what);

  // Where `bytes` at `data` lie: a region, or TensorPlace::kStaged.
  TensorPlace place_of(const std::byte* data, int64_t bytes) const;

  // Where the `local`-th rank's `place` is mapped here.
  std::byte* address(const TensorPlace& place, int local) const {
    return regions_[static_cast<size_t>(place.region)].bases[static_cast<size_t>(local)] +
           place.offset;
  }

 private:
  // One allocation: where every local rank's part of it is mapped here.
  struct Region {
    std::weak_ptr<const void> life;  // of this rank's part
    const std::byte* own = nullptr;
    int64_t bytes = 0;  // of this rank's part
    std::vector<std::byte*> bases;
    std::vector<Memory> mapped;
  };
  std::vector<Region> regions_;
};

}  // namespace dstrain
