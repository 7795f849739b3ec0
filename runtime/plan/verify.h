// verify: an independent proof of a placed plan. It replays the step on a map of memory, from the
// order and the addresses alone, and so shares no reasoning with the passes that made them.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

// Proves a placed plan: operands legal for their op, nothing read before it is written, no bytes reused
// while somebody still needs them, peers and collectives under way included. Throws InternalError
// naming the instruction.
void verify(const Plan& plan);

}  // namespace dstrain
