#include "models/exported/lower/ops/lines/lines.h"

namespace dstrain::exported {

Lines lines_along(const Shape& shape, int dimension) {
  Lines lines{.size = shape[dimension], .apart = 1};
  for (int d = dimension + 1; d < shape.rank; ++d) lines.apart *= shape[d];
  return lines;
}

BufferId elements_as(Lowering& l, Value value, ScalarType type) {
  value.type = type;
  const bool integers = is_integer(type);
  const BufferId id = l.dense(value);
  if ((l.builder().program().at(id).dtype == DType::i32) == integers) return id;
  const Shape space = space_of(value.shape);
  return l.builder().map(Formula::input(0), space, {{id, dense_view(space)}},
                         integers ? DType::i32 : DType::f32);
}

}  // namespace dstrain::exported
