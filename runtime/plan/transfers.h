// Transfers between spaces. Between the device and a disk they pass the host's memory, in two hops.
#pragma once

#include <vector>

#include "runtime/ir/program.h"

namespace dstrain {

// Returns the instructions that bring the content of `from` to `to`, a buffer of the same size in another space: one,
// or two by way of a buffer of their own in the host's memory. They are issued as `like` is, in its layer and slot.
std::vector<Instruction> transfer(Program& program, BufferId from, BufferId to, Instruction like);

}  // namespace dstrain
