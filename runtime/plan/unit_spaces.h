// What layout() says of each unit: how its tensors travel, and where they live: on the device, in the host's memory or on a
// drive. The offload sections of the configuration are how the table of spaces is filled; passes ask it, and bring_operands()
// brings together what an instruction needs.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/residency.h"

namespace dstrain {

// Returns where the optimizer works for units whose state is offloaded: beside it in the host's memory, or on the device.
Space update_space(const OffloadConfig& offload);

// Fills Unit::codecs, before layout() places gradients. Throws InternalError if gradients are to travel as rows of
// tokens and the token embedding is not the first parameter of its unit, or its gradient has several parts.
void assign_codecs(Program& program, const Job& job, const Residency& residency);

// Fills Unit::spaces. The units' sizes must be known. Optimizer state of units is offloaded that have at least the share
// `ratio` of all elements: units stay on the device, in the order of the model, where they fit into the rest; the same ones
// on all ranks of a data-parallel group. Gradients leave the device where the host updates and ranks add them after each
// micro-batch; with one micro-batch they follow the state to a drive, unless ranks hold them whole and add slices.
void assign_spaces(Program& program, const Job& job, const Place& place,
                   const Residency& residency);

}  // namespace dstrain
