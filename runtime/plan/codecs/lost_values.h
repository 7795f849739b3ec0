// What quantizing loses: once a step each rank compares the part that it owns before it is packed with what comes back of
// it. Both are in memory at that moment, so a unit costs two passes over a part.
#pragma once

#include <string_view>

#include "runtime/ir/program.h"

namespace dstrain {

// Returns `like` without what is its op's own, issued once a step.
Instruction once_a_step(const Instruction& like);

// Returns what measures the loss of a class of kCodecClasses: two sums of squares in f64, of the differences between `exact`
// and `back` and of `exact`, into the unit's row of the buffer codec_error_name(), which is made with the first.
Instruction measure_loss(Program& program, int unit, std::string_view of, BufferId exact,
                         BufferId back, const Instruction& like);

}  // namespace dstrain
