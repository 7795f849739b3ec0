#include "runtime/plan/parallel/divided_matrix.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/core/error.h"

namespace dstrain {

DividedMatrix::DividedMatrix(Program& program, const Place& place, const Parameter& parameter,
                             Instruction like)
    : program_(program),
      place_(place),
      parameter_(parameter),
      like_(std::move(like)),
      held_(held_shape(parameter.part, parameter.shape)),
      parts_(place.ranks_in(Axis::tensor)) {
  check(parameter.part.parts == parts_ && parameter.shape.rank == 2,
        "{} is not a matrix that {} ranks divide", parameter.name, parts_);
}

Instruction& DividedMatrix::emit(OpKind kind, BufferId from, BufferId to) {
  Instruction op = like_;
  op.op = kind;
  op.reads = {from};
  op.writes = {to};
  program_.instructions.push_back(std::move(op));
  return program_.instructions.back();
}

BufferId DividedMatrix::add(std::string_view what, const Shape& shape, Space space) {
  return program_.add_buffer({.name = fmt::format("{}:{}", what, parameter_.name),
                              .shape = shape,
                              .memory = MemoryClass::optimizer,
                              .lifetime = Lifetime::step,
                              .space = space});
}

BufferId DividedMatrix::gather(BufferId part) {
  const int64_t rows = held_[0], columns = held_[1];
  const Space space = program_.space_of(part);
  const BufferId parts = by_columns() ? add("parts", {parts_, rows, columns}, space)
                                      : add("whole", {parts_ * rows, columns}, space);
  emit(OpKind::all_gather, part, parts).channel = channel_of(place_, Axis::tensor);
  if (!by_columns()) return parts;
  const BufferId whole = add("whole", {rows, parts_ * columns}, space);
  emit(OpKind::join_columns, parts, whole).attrs = ColumnsAttrs{.parts = parts_};
  return whole;
}

BufferId DividedMatrix::pick(BufferId whole) {
  BufferId parts = whole;
  if (by_columns()) {
    parts = add("picked", {parts_, held_[0], held_[1]}, program_.space_of(whole));
    emit(OpKind::split_columns, whole, parts).attrs = ColumnsAttrs{.parts = parts_};
  }
  const int64_t elements = held_.elements();
  return program_.view(parts, place_.rank_in(Axis::tensor) * elements, elements);
}

}  // namespace dstrain
