// What the ops over lines of an operand have in common: scan and sort.
#pragma once

#include <cstdint>
#include <limits>

#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

// Checks that the op reads an operand of such lines, of numbers or of integers.
inline void expect_lines(const Operands& o, const Lines& lines) {
  o.expect(lines.size > 0 && lines.apart > 0 && lines.size <= std::numeric_limits<int32_t>::max(),
           "a line has 1 to 2^31 - 1 elements");
  const int64_t elements = o.in(0).shape.elements();
  o.expect(elements > 0 && elements % (lines.size * lines.apart) == 0,
           "an operand consists of whole lines, of at least one");
  if (o.in(0).dtype != DType::i32) o.values(o.in(0));
}

// Returns the axes of an op over the rows of its operand, each of them a line of which it needs all elements; none, where lines
// are other elements. `made`: elements of a row of the result.
inline OpAxes axes_of_lines(const Program& p, const Instruction& op, const Lines& lines,
                            int64_t made) {
  const bool rows = lines.apart == 1 && p.at(op.reads[0]).shape[-1] == lines.size &&
                    p.at(op.writes[0]).shape[-1] == made;
  return rows ? axes_are<"row channel! -> row channel">(p, op) : OpAxes{};
}

}  // namespace dstrain::ops
