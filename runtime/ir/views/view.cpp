#include "runtime/ir/views/view.h"

#include <algorithm>
#include <vector>

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

std::optional<View> reshaped(const View& view, const Shape& from, const Shape& to) {
  // The dimensions of `from` that have more than one index.
  std::vector<int> old;
  for (int d = 0; d < from.rank; ++d) {
    if (from[d] != 1)
      old.push_back(d);
    else if (view.bounds(d, 1))
      return std::nullopt;
  }
  const auto stride = [&view](int d) { return view.strides[static_cast<size_t>(d)]; };
  View result{.offset = view.offset};
  int at = to.rank - 1;
  for (auto i = static_cast<int>(old.size()) - 1; i >= 0; --i) {
    const int last = old[static_cast<size_t>(i)];
    const bool bounded = view.bounds(last, from[last]);
    // The longest run of dimensions that are walked through evenly.
    int64_t run = from[last];
    for (; i > 0 && !bounded; --i) {
      const int here = old[static_cast<size_t>(i)], before = old[static_cast<size_t>(i - 1)];
      if (view.bounds(before, from[before]) || stride(before) != from[here] * stride(here)) break;
      run *= from[before];
    }
    int64_t step = stride(last);
    for (; at >= 0 && run > 1 && run % to[at] == 0; --at) {
      if (to[at] == 1) continue;
      if (bounded && to[at] != run) return std::nullopt;
      const auto d = static_cast<size_t>(at);
      result.strides[d] = step;
      if (bounded) {
        result.begin[d] = view.begin[static_cast<size_t>(last)];
        result.end[d] = view.end[static_cast<size_t>(last)];
      }
      step *= to[at];
      run /= to[at];
    }
    if (run != 1) return std::nullopt;
  }
  for (; at >= 0; --at)
    if (to[at] != 1) return std::nullopt;
  return result;
}

std::optional<SeenElements> composed(const SeenElements& outer, const SeenElements& inner) {
  if (outer.view.bounded(outer.space) || inner.view.bounded(inner.space)) return std::nullopt;
  if (outer.space.elements() == 0 || inner.space.elements() == 0) return std::nullopt;
  const View order = dense_view(inner.space);
  // The largest index that is read of each inner dimension, as far as it is known.
  View::Numbers largest{};
  SeenElements result{.view = {.offset = inner.view.offset}};
  int64_t rest = outer.view.offset;
  if (rest < 0) return std::nullopt;
  for (int d = 0; d < inner.space.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    largest[i] = rest / order.strides[i];
    rest %= order.strides[i];
    result.view.offset += largest[i] * inner.view.strides[i];
  }
  // Appends `count` indices, `stride` elements apart, which may be several dimensions.
  const auto append = [&](auto& self, int64_t count, int64_t stride) -> bool {
    if (count == 1) return true;
    int d = inner.space.rank - 1;
    const auto at = [](int dimension) { return static_cast<size_t>(dimension); };
    while (d > 0 && stride >= order.strides[at(d - 1)]) --d;
    const int64_t step = stride == 0 ? 0 : stride / order.strides[at(d)];
    if (stride < 0 || step * order.strides[at(d)] != stride) return false;
    int64_t here = count;
    if (largest[at(d)] + (count - 1) * step >= inner.space[d]) {
      // The indices go on in the dimension before.
      if (inner.space[d] % step != 0) return false;
      here = inner.space[d] / step;
      if (count % here != 0 || d == 0 || !self(self, count / here, stride * here)) return false;
    }
    largest[at(d)] += (here - 1) * step;
    if (largest[at(d)] >= inner.space[d] || result.space.rank == Shape::kMaxRank) return false;
    result.view.strides[at(result.space.rank)] = step * inner.view.strides[at(d)];
    result.space.append(here);
    return true;
  };
  for (int d = 0; d < outer.space.rank; ++d)
    if (!append(append, outer.space[d], outer.view.strides[static_cast<size_t>(d)]))
      return std::nullopt;
  if (result.space.rank == 0) result.space.append(1);
  return result;
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
