// Placement: gives every buffer an address before the first step. Persistent buffers follow one another.
// The others share memory where their lifetimes do not overlap: the largest buffer is placed first, each at
// the lowest offset that is free for its whole lifetime.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"

namespace dstrain {

// Gives every buffer of `plans`, which are those of one rank, an address: what peers read in registered memory. A
// persistent buffer has the same address in every plan that has a buffer of its name.
MemoryTable place_memory(const std::vector<Plan*>& plans, const PlanInputs& inputs);

}  // namespace dstrain
