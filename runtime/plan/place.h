// Placement: every buffer gets an address at start-up. Persistent buffers lie one after another;
// the others share a region wherever their lives do not overlap, largest first, at the lowest
// offset that is free for their whole life.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"

namespace dstrain {

// Gives every buffer of `plans` an address; the first plan's persistent buffers come first and are
// found by name.
MemoryTable place_memory(const std::vector<Plan*>& plans, const KernelLibrary& library);

}  // namespace dstrain
