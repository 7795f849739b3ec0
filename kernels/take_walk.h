// The index space of a take or put, the same on every device: its dimensions collapsed, and what they have in common.
#pragma once

#include <algorithm>
#include <cstdlib>
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
  // Returns whether no two indices with another index of dimension `d` have an element in common, whatever the other indices
  // are: what else is added to an element's number is a multiple of the whole dimension, or less than a step of it.
  bool is_apart(int d) const {
    const auto strides = [this](int i) { return views[0].strides[static_cast<size_t>(i)]; };
    const int64_t step = strides(d);
    if (step <= 0) return false;
    int64_t reach = 0;
    const auto further = [&](int64_t other, int64_t count) {
      if (other % (step * space[d]) != 0) reach += std::abs(other) * (count - 1);
    };
    for (int i = 0; i < space.rank; ++i)
      if (i != d) further(strides(i), space[i]);
    for (const TakeAttrs::Indices& of : indices) further(of.stride, of.size);
    return reach < step;
  }
};

}  // namespace dstrain
