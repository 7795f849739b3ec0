// Instructions that are moved together: what becomes of those between them.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "runtime/ir/program.h"

namespace dstrain {

// A range of a program's instructions with some of them moved together. Indices of instructions.
struct MovedTogether {
  size_t first = 0, last = 0;  // of the range
  std::vector<size_t> before,
      after;  // of the range, those that run in front of them and behind them
};

// Returns how the instructions `together` (ascending, not empty) come to follow one another, and behind what makes the
// buffers `also`: what they depend on runs before them, everything else of the range after. `gone`: instructions that are
// no longer there. nullopt: another order of two instructions would change what they compute.
std::optional<MovedTogether> moved_together(const Program& program,
                                            const std::vector<size_t>& together,
                                            const std::set<BufferId>& also,
                                            const std::set<size_t>& gone);

}  // namespace dstrain
