// The whole of a matrix that a tensor group divides, for operations that no part of it is enough for.
#pragma once

#include <vector>

#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

// A matrix (N,K) of which each rank of a tensor group has a part, as `parameter` is divided. `like`: what the emitted
// instructions have in common: when and in which group they are issued.
class DividedMatrix {
 public:
  DividedMatrix(Program& program, const Place& place, const Parameter& parameter, Instruction like);

  // Emits the gather of what the ranks have in `part`, f32, of the part's shape in memory. Returns a matrix with the rows
  // and columns of the whole one, and rows or columns of zeros where parts have padding: sections of rows lie part by part.
  // So it is the whole matrix but for the order of its rows, and for zeros.
  BufferId gather(BufferId part);
  // Emits what picks this rank's part of such a matrix, with its padding. Returns its elements as a flat buffer.
  // What either adds is in the space of its operand.
  BufferId pick(BufferId whole);

 private:
  Instruction& emit(OpKind kind, BufferId from, BufferId to);
  BufferId add(std::string_view what, const Shape& shape, Space space);
  bool by_columns() const { return parameter_.part.by == TensorPart::By::columns; }

  Program& program_;
  const Place place_;
  const Parameter& parameter_;
  const Instruction like_;
  const Shape held_;
  const int64_t parts_;
};

}  // namespace dstrain
