// The norms of rows that are recognised.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/recognise/sources.h"

namespace dstrain {

// A norm that an instruction computes.
struct FoundNorm {
  // A result beside the rows, which is f32.
  struct Statistic {
    std::string suffix{};  // of its buffer's name
    Shape shape{};
  };
  OpKind norm{};
  OpAttrs attrs{};
  std::vector<BufferId> reads{};  // the first are the rows
  std::vector<Statistic> statistics{};
  BufferId added = kNone;  // rows that the norm is added to
};

// Returns a norm in the place of an instruction, and a sum if there is something to add. Nothing if the result or what is added has
// other rows.
std::vector<Instruction> norm_and_sum(Program& program, const Instruction& op,
                                      const FoundNorm& found);

// Returns the layer norm that an instruction computes, and the sum with another operand if it adds one; nothing if it computes
// another thing.
std::vector<Instruction> layer_norm_in(Program& program, const Sources& sources,
                                       const Instruction& op);

}  // namespace dstrain
