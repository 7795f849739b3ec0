// What the parts of a pipeline compute each for itself.
#pragma once

#include <vector>

#include "runtime/ir/program.h"

namespace dstrain {

// Returns the program with what follows from inputs and constants alone, masks and positions and draws, computed in each part
// that reads it, so that nothing of it travels. `part_of`: the part of each instruction, which becomes that of the result.
Program repeat_in_parts(const Program& program, std::vector<int>& part_of);

}  // namespace dstrain
