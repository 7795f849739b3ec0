// Arenas: a rank's memory, reserved once before the first step from the plan's table. Everything the
// plans place lies in one of three regions; an Address becomes a pointer here and nowhere else.
#pragma once

#include <array>

#include "runtime/comm/communicator.h"
#include "runtime/core/memory.h"
#include "runtime/plan/plan.h"

namespace dstrain {

class Arenas {
 public:
  // Reserves what `table` says and makes it present, with `threads` threads; collective over `comm`
  // (peers map the registered region). Throws RunError where the machine does not have it.
  Arenas(const MemoryTable& table, Communicator& comm, int threads);

  // The tensor of a buffer of `plan`; of its copy `micro` where it has one per micro-batch.
  Tensor tensor(const Plan& plan, BufferId id, int micro = 0) const;
  std::byte* at(const Address& address) const {
    return regions_[static_cast<size_t>(address.region)].data() + address.offset;
  }
  int64_t reserved_bytes() const;

 private:
  std::array<Memory, kRegions> regions_;
};

}  // namespace dstrain
