// Random index spaces and views for tests of the general ops.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "runtime/ir/views/view.h"

namespace dstrain {

// Numbers that follow from a seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed * 2 + 1) {}
  // Returns a number of [first, last].
  int64_t operator()(int64_t first, int64_t last) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return first + static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(last - first + 1));
  }
  bool once_in(int64_t n) { return (*this)(1, n) == 1; }

 private:
  uint64_t state_;
};

inline Shape random_space(Draw& draw, int most_rank, int64_t most_elements) {
  Shape space;
  const auto rank = static_cast<int>(draw(1, most_rank));
  int64_t left = most_elements;
  for (int d = 0; d < rank; ++d) {
    space.append(draw(1, std::min<int64_t>(left, d + 1 == rank ? left : 9)));
    left /= space[d];
  }
  return space;
}

// A view, and an operand that is as large as the view asks.
struct RandomOperand {
  View view{};
  int64_t elements = 0;
};

// Returns a view whose dimensions are in any order in memory, with gaps, a beginning, dimensions along which it reads the
// same element, and with `bounds` indices that have none.
inline RandomOperand random_view(Draw& draw, const Shape& space, bool bounds) {
  RandomOperand operand;
  std::vector<int> order(static_cast<size_t>(space.rank));
  std::iota(order.begin(), order.end(), 0);
  if (draw.once_in(2))
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(draw(0, static_cast<int64_t>(i) - 1))]);
  View& view = operand.view;
  int64_t stride = draw.once_in(4) ? draw(1, 3) : 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(order[i]);
    if (!draw.once_in(5)) {  // else the same element
      view.strides[d] = stride;
      stride *= space[order[i]] + (draw.once_in(5) ? draw(1, 3) : 0);
    }
    if (!bounds || !draw.once_in(3)) continue;
    view.begin[d] = draw(0, space[order[i]] - 1);
    if (draw.once_in(2)) view.end[d] = draw(view.begin[d], space[order[i]]);
  }
  view.offset = draw.once_in(2) ? draw(0, 5) : 0;
  const auto range = elements_read(view, space);
  operand.elements = range ? range->last + 1 : 1;
  if (range && draw.once_in(2)) operand.elements += draw(0, 4);
  return operand;
}

// Calls f with each index of a space, in order.
inline void for_indices(const Shape& space, const std::function<void(const View::Numbers&)>& f) {
  for (int64_t i = 0; i < space.elements(); ++i) {
    View::Numbers index{};
    int64_t rest = i;
    for (int d = space.rank - 1; d >= 0; --d) {
      index[static_cast<size_t>(d)] = rest % space[d];
      rest /= space[d];
    }
    f(index);
  }
}

// Returns the element that belongs to an index; -1: there is none.
inline int64_t element_at(const View& view, const View::Numbers& index) {
  int64_t element = view.offset;
  for (size_t d = 0; d < index.size(); ++d) {
    if (index[d] < view.begin[d] || index[d] >= view.end[d]) return -1;
    element += index[d] * view.strides[d];
  }
  return element;
}

}  // namespace dstrain
