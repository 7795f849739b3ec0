// Gradients that leave the device: those of a unit leave as soon as ranks have added them, and the host adds those of the
// step's micro-batches and their squares. Those that live on disk (Unit::spaces) go on there.
#pragma once

#include "runtime/ir/program.h"

namespace dstrain {

// Gives the sums of such gradients their transfers, after update(). The numbers of a step do not change.
void bring_gradients(Program& program, bool one_micro_batch);

}  // namespace dstrain
