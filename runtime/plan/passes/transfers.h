// Transfers between spaces. Between the device and a disk they pass the host's memory, in two hops.
#pragma once

#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"

namespace dstrain {

// Returns where the optimizer works: beside its state in the host's memory, or on the device.
Space update_space(const OffloadConfig& offload);

// Returns for each unit whether its optimizer state is offloaded, in units of their elements at least the share `ratio`
// of all state: units stay on the device, in the order of the model, where they fit into the rest. The same on all
// ranks of a data-parallel group. Where no state is offloaded, all are.
std::vector<bool> offloaded_units(const Program& program, const OffloadConfig& offload);

// Returns the instructions that bring the content of `from` to `to`, a buffer of the same size in another space: one,
// or two by way of a buffer of their own in the host's memory. They are issued as `like` is, in its layer and slot.
std::vector<Instruction> transfer(Program& program, BufferId from, BufferId to, Instruction like);

}  // namespace dstrain
