// Where the tensors of units live: on the device, in the host's memory or on a drive. The offload sections of the
// configuration are how this table is filled; passes ask it, and bring_operands() brings together what an instruction
// needs.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/residency.h"

namespace dstrain {

// Returns where the optimizer works for units whose state is offloaded: beside it in the host's memory, or on the device.
Space update_space(const OffloadConfig& offload);

// Fills Unit::spaces. The units' sizes must be known. Optimizer state of units is offloaded that have at least the share
// `ratio` of all elements: units stay on the device, in the order of the model, where they fit into the rest; the same ones
// on all ranks of a data-parallel group. Gradients leave the device where the host updates and ranks add them after each
// micro-batch; with one micro-batch they follow the state to a drive, unless ranks hold them whole and add slices.
void assign_spaces(Program& program, const Job& job, const Place& place,
                   const Residency& residency);

}  // namespace dstrain
