// Which buffers lie in memory that is registered with communicators, because peers read them there.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"

namespace dstrain {

// Returns the operands of an instruction that other ranks read directly: what a collective or a message of several
// ranks reads. What such an operation writes, its own rank alone writes.
std::vector<BufferId> read_by_peers(const Plan& plan, const Instruction& op);

// Marks the buffers that have an operand which peers read (Buffer::shared), in all plans of a rank, once their
// instructions are complete. What one plan marks is marked in all: persistent buffers have one address, and two regions
// would have room for gradients that one kind of steps sends and another one keeps.
void mark_shared(const std::vector<Plan*>& plans);

}  // namespace dstrain
