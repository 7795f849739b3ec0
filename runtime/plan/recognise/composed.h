// What an instruction computes of values that maps before it have not made: the maps' formulas in its own.
#pragma once

#include <optional>
#include <vector>

#include "runtime/plan/recognise/sources.h"

namespace dstrain {

// A formula at each index of a space, of elements of buffers. No two operands are the same elements.
struct Composed {
  Formula formula{};
  Shape space{};
  std::vector<BufferId> reads{};
  std::vector<View> views{};

  // Returns the operand that is a buffer's elements; -1: none is, or several are.
  int operand_of(BufferId id) const;
};

// Returns what a map or a reduction computes at each index of its space, with the formulas of the maps that make its operands in
// the place of these. `kept`: not kNone: the buffer is an operand as it is, and of the maps only those are replaced that read it or
// whose result has one value for each row. Nothing if the instruction is another one, or the formula would be too long.
std::optional<Composed> composed(const Sources& sources, const Instruction& op, BufferId kept);

// Returns the reductions of this kind whose results an instruction reads, itself or through maps.
std::vector<const Instruction*> reductions_read(const Sources& sources, const Instruction& op,
                                                Reduction kind);

// Returns whether an instruction reduces the rows of a space, of a formula of these operands: the first one has the first elements
// of rows of `width`, and the others have one for each row.
bool reduces_rows(const Sources& sources, const Instruction* op, Reduction kind,
                  const Formula& formula, const Shape& space, int64_t width,
                  const std::vector<BufferId>& operands);

}  // namespace dstrain
