// The index space of a take or put, the same on every device: its dimensions collapsed, and what they have in common.
#pragma once

#include <span>
#include <vector>

#include "runtime/ir/op.h"

namespace dstrain {

struct TakeWalk {
  Shape space{};
  std::vector<View> views{};  // of the table, then of each operand of indices
  std::vector<TakeAttrs::Indices> indices{};

  explicit TakeWalk(const TakeAttrs& attrs) : space(attrs.space), indices(attrs.indices) {
    views.push_back(attrs.table);
    for (const TakeAttrs::Indices& of : indices) views.push_back(of.view);
    collapse(space, views);
  }
  // Elements of the last dimension, and how many such rows there are.
  int64_t columns() const { return space[-1]; }
  int64_t rows() const { return space.elements() / std::max<int64_t>(1, columns()); }
  // Returns the stride of a view along the last dimension.
  int64_t stride(size_t view) const {
    return views[view].strides[static_cast<size_t>(space.rank - 1)];
  }
  // Returns whether the indices are the same along the last dimension.
  bool by_row() const {
    for (size_t i = 1; i < views.size(); ++i)
      if (stride(i) != 0) return false;
    return stride(0) > 0;
  }
  // Returns whether no two indices of the first dimension have an element in common, whatever the other indices are.
  bool first_is_apart() const {
    const View& table = views[0];
    int64_t reach = 1;
    for (int d = 1; d < space.rank; ++d) {
      const int64_t stride = table.strides[static_cast<size_t>(d)];
      reach += std::max(stride, -stride) * (space[d] - 1);
    }
    for (const TakeAttrs::Indices& of : indices) reach += of.stride * (of.size - 1);
    return table.strides[0] >= reach;
  }
  // Returns whether no two columns have an element in common, in whatever rows: what else is added to an element's number is
  // a multiple of all columns, or less than one.
  bool columns_are_apart() const {
    if (!by_row()) return false;
    int64_t inner = 1;
    bool apart = true;
    const auto further = [&](int64_t step, int64_t count) {
      if (step % (stride(0) * columns()) == 0) return;
      apart = apart && step > 0;
      inner += step * (count - 1);
    };
    for (int d = 0; d + 1 < space.rank; ++d)
      further(views[0].strides[static_cast<size_t>(d)], space[d]);
    for (const TakeAttrs::Indices& of : indices) further(of.stride, of.size);
    return apart && inner <= stride(0);
  }
};

}  // namespace dstrain
