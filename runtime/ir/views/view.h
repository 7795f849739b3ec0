// View: which element of an operand belongs to an index of an index space. The general ops (map, reduce, contract, take,
// put) walk through an index space of up to Shape::kMaxRank dimensions and read each operand through a view. So a
// transposed, sliced, broadcast or padded operand is read where it is, and nothing is copied.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "runtime/core/tensor.h"

namespace dstrain {

// The element of index (i0, i1, ...) is offset + i0 * strides[0] + i1 * strides[1] + ... A stride of 0 reads the same
// element at each index of a dimension. Where an index is outside [begin, end) of a dimension the operand has no element:
// it reads as 0.
struct View {
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  using Numbers = std::array<int64_t, Shape::kMaxRank>;

  int64_t offset = 0;
  Numbers strides{};
  Numbers begin{};
  Numbers end{kAll, kAll, kAll, kAll, kAll, kAll, kAll, kAll};

  // Returns whether some index of the dimension is outside.
  bool bounds(int dimension, int64_t size) const {
    const auto d = static_cast<size_t>(dimension);
    return begin[d] > 0 || end[d] < size;
  }
  bool bounded(const Shape& space) const {
    for (int d = 0; d < space.rank; ++d)
      if (bounds(d, space[d])) return true;
    return false;
  }
  bool operator==(const View&) const = default;
};

// Returns the view of a row-major operand whose elements are the indices of the space, in order.
View dense_view(const Shape& space);
// Returns whether the view's elements are the indices of the space, in order.
bool is_dense(const View& view, const Shape& space);
// Returns the view of a row-major operand whose dimensions are the last ones of the space, each as long as the space's or 1:
// NumPy's broadcasting. Nothing if they are not.
std::optional<View> broadcast_view(const Shape& operand, const Shape& space);

// Returns the smallest and the largest element that the view reads; nothing if it reads none.
struct ElementRange {
  int64_t first = 0, last = 0;
};
std::optional<ElementRange> elements_read(const View& view, const Shape& space);

// Returns the view that reads the same elements as `view` does of the space `from`, in the same order, in the space `to`, which has
// as many indices. Bounded dimensions stay as they are. Nothing if there is none: the elements must be copied.
std::optional<View> reshaped(const View& view, const Shape& from, const Shape& to);

// Elements of an operand: those that the view reads, in the order of the space.
struct SeenElements {
  Shape space{};
  View view{};
};
// Returns where the elements that `outer` reads of an operand are in the operand that has these as `inner` says. Neither has
// bounds. Nothing if no view does it.
std::optional<SeenElements> composed(const SeenElements& outer, const SeenElements& inner);

// Makes the dimensions of an index space as few as possible, so that the views walk through the same elements in the same
// order: those of size 1 go, and neighbours that all views walk through evenly are joined. The first `kept` dimensions are
// not joined with the others. Returns how many of them are left. The space has at least one dimension then.
int collapse(Shape& space, std::span<View> views, int kept = 0);

}  // namespace dstrain
