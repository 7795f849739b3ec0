// verify: an independent proof that a placed plan is correct. It replays a step on a map of memory, using
// only the order and the addresses, so it shares no reasoning with the passes that made them.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

// Proves that operands are legal for their ops, that nothing is read before it is written, and that no byte
// is reused while an instruction, a running collective or a peer still needs it. Throws InternalError
// naming the instruction.
void verify(const Plan& plan);
// The part of it about gathered parameters: proves that every gather is used, and that no more parameters are gathered at a
// time than the plan's limit allows.
void verify_gathers(const Plan& plan);

}  // namespace dstrain
