#include "runtime/ir/views/adjoint.h"

#include <algorithm>
#include <vector>

namespace dstrain {

void Adjoint::append(int64_t size, Dimension dimension) {
  dimensions_[static_cast<size_t>(space_.rank)] = dimension;
  space_.append(size);
}

std::optional<Adjoint> Adjoint::of(const View& view, const Shape& space, int64_t elements) {
  if (view.bounded(space)) return std::nullopt;
  std::vector<int> walked, repeated;
  for (int d = 0; d < space.rank; ++d) {
    if (space[d] == 1) continue;
    (view.strides[static_cast<size_t>(d)] == 0 ? repeated : walked).push_back(d);
  }
  const auto stride = [&view](int d) { return view.strides[static_cast<size_t>(d)]; };
  std::ranges::sort(walked, [&](int a, int b) { return stride(a) > stride(b); });
  Adjoint adjoint(space);
  // An element's number is written with a digit for each dimension: how often its stride is in what is left of it.
  int64_t left = view.offset, span = elements;
  for (const int d : walked) {
    if (stride(d) < 0 || span % stride(d) != 0) return std::nullopt;
    const int64_t digits = span / stride(d), first = left / stride(d);
    if (first + space[d] > digits || adjoint.space_.rank == Shape::kMaxRank) return std::nullopt;
    adjoint.append(digits, {d, first, space[d]});
    adjoint.bounded_ = adjoint.bounded_ || digits != space[d];
    span = stride(d);
    left -= first * stride(d);
  }
  if (left >= span) return std::nullopt;
  if (span > 1 || adjoint.space_.rank == 0) {  // elements between those that the view reads
    if (adjoint.space_.rank == Shape::kMaxRank) return std::nullopt;
    adjoint.append(span, {-1, left, 1});
    adjoint.bounded_ = adjoint.bounded_ || span > 1;
  }
  adjoint.kept_ = adjoint.space_.rank;
  for (const int d : repeated) {
    if (adjoint.space_.rank == Shape::kMaxRank) return std::nullopt;
    adjoint.append(space[d], {d, 0, space[d]});
  }
  return adjoint;
}

View Adjoint::through(const View& other) const {
  View view;
  view.offset = other.offset;
  for (int i = 0; i < space_.rank; ++i) {
    const auto to = static_cast<size_t>(i);
    const Dimension& dimension = dimensions_[to];
    if (space_[i] != dimension.size) {
      view.begin[to] = dimension.first;
      view.end[to] = dimension.first + dimension.size;
    }
    if (dimension.of < 0) continue;
    const auto from = static_cast<size_t>(dimension.of);
    view.strides[to] = other.strides[from];
    view.offset -= dimension.first * other.strides[from];
    if (other.begin[from] > 0)
      view.begin[to] = std::max(view.begin[to], other.begin[from] + dimension.first);
    if (other.end[from] < dimension.size)
      view.end[to] = std::min(view.end[to], other.end[from] + dimension.first);
  }
  // A dimension with one index, where the other view has no element, is none of this space.
  for (int d = 0; d < op_space_.rank; ++d)
    if (op_space_[d] == 1 && other.bounds(d, 1)) view.end[0] = view.begin[0];
  return view;
}

}  // namespace dstrain
