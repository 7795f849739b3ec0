#include "runtime/ir/views/general_attrs.h"

#include <algorithm>

#include "runtime/ir/views/broadcast.h"

namespace dstrain {

MapWalk walk_of(const Shape& result, std::span<const Shape> operands, const MapAttrs& attrs) {
  if (!attrs.views.empty()) return {attrs.space, attrs.views};
  MapWalk walk{.space = {result.elements() / std::max<int64_t>(1, result[-1]), result[-1]}};
  for (const Shape& operand : operands)
    walk.views.push_back(view_by_row(broadcast_of(result, operand), walk.space));
  return walk;
}

bool reduces_columns(const ReduceAttrs& attrs) {
  const int kept = attrs.kept, rank = attrs.space.rank;
  if (kept == 0 || kept == rank) return false;
  for (const View& view : attrs.views) {
    if (view.strides[static_cast<size_t>(rank - 1)] == 1) return false;
    if (view.strides[static_cast<size_t>(kept - 1)] == 1) return true;
  }
  return false;
}

}  // namespace dstrain
