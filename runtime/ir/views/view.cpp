#include "runtime/ir/views/view.h"

#include <algorithm>

namespace dstrain {
namespace {

// Removes dimension d of a space of `rank` dimensions from a list of one number for each.
void remove(View::Numbers& numbers, int d, int rank, int64_t fill) {
  std::move(numbers.begin() + d + 1, numbers.begin() + rank, numbers.begin() + d);
  numbers[static_cast<size_t>(rank - 1)] = fill;
}

void remove_dimension(Shape& space, std::span<View> views, int d) {
  for (View& view : views) {
    remove(view.strides, d, space.rank, 0);
    remove(view.begin, d, space.rank, 0);
    remove(view.end, d, space.rank, View::kAll);
  }
  remove(space.dims, d, space.rank, 0);
  --space.rank;
}

// Returns whether all views walk through dimensions d and d + 1 as through one.
bool are_even(const Shape& space, std::span<const View> views, int d) {
  const auto i = static_cast<size_t>(d);
  return std::ranges::all_of(views, [&](const View& view) {
    return view.strides[i] == view.strides[i + 1] * space[d + 1] && !view.bounds(d, space[d]) &&
           !view.bounds(d + 1, space[d + 1]);
  });
}

}  // namespace

View dense_view(const Shape& space) {
  View view;
  int64_t stride = 1;
  for (int d = space.rank - 1; d >= 0; --d) {
    view.strides[static_cast<size_t>(d)] = stride;
    stride *= space[d];
  }
  return view;
}

bool is_dense(const View& view, const Shape& space) {
  if (view.offset != 0 || view.bounded(space)) return false;
  const View dense = dense_view(space);
  for (int d = 0; d < space.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    if (space[d] > 1 && view.strides[i] != dense.strides[i]) return false;
  }
  return true;
}

std::optional<View> broadcast_view(const Shape& operand, const Shape& space) {
  const int missing = space.rank - operand.rank;
  if (missing < 0) return std::nullopt;
  const View dense = dense_view(operand);
  View view;
  for (int d = 0; d < operand.rank; ++d) {
    if (operand[d] != 1 && operand[d] != space[d + missing]) return std::nullopt;
    const auto from = static_cast<size_t>(d), to = from + static_cast<size_t>(missing);
    if (operand[d] != 1) view.strides[to] = dense.strides[from];
  }
  return view;
}

std::optional<ElementRange> elements_read(const View& view, const Shape& space) {
  ElementRange range{view.offset, view.offset};
  for (int d = 0; d < space.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    const int64_t first = std::max<int64_t>(view.begin[i], 0),
                  last = std::min(view.end[i], space[d]) - 1;
    if (first > last) return std::nullopt;
    range.first += view.strides[i] * (view.strides[i] < 0 ? last : first);
    range.last += view.strides[i] * (view.strides[i] < 0 ? first : last);
  }
  return range;
}

int collapse(Shape& space, std::span<View> views, int kept) {
  for (int d = space.rank - 1; d >= 0; --d) {
    const bool bounded =
        std::ranges::any_of(views, [&](const View& view) { return view.bounds(d, space[d]); });
    if (space[d] != 1 || bounded) continue;
    remove_dimension(space, views, d);
    if (d < kept) --kept;
  }
  for (int d = space.rank - 2; d >= 0; --d) {
    if (d + 1 == kept || !are_even(space, views, d)) continue;
    space.dims[static_cast<size_t>(d)] *= space[d + 1];
    const auto joined = static_cast<size_t>(d);
    for (View& view : views) view.strides[joined] = view.strides[joined + 1];
    remove_dimension(space, views, d + 1);
    if (d + 1 < kept) --kept;
  }
  if (space.rank == 0) space.append(1);
  return kept;
}

}  // namespace dstrain
