#include "models/exported/lower/value.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

// Lets dimension `to` of a view be dimension `from` of the view that it was.
void take_dimension(const View& before, int from, View& view, int to) {
  const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
  view.strides[b] = before.strides[a];
  view.begin[b] = before.begin[a];
  view.end[b] = before.end[a];
}

// Gives the value a shape, and lets `change` say the dimensions of each view by those that it had.
template <class Change>
Value with_shape(Value value, const Shape& shape, const Change& change) {
  for (Builder::Seen& seen : value.operands) {
    const View before = seen.view;
    seen.view = {.offset = before.offset};
    change(before, seen.view);
  }
  value.shape = shape;
  return value;
}

}  // namespace

bool Value::is_dense() const {
  if (!is_plain()) return false;
  return dstrain::is_dense(operands[0].view, shape);
}

Value number(double value, ScalarType type) {
  return {.formula = Formula(static_cast<float>(value)), .operands = {}, .type = type};
}

Value whole(BufferId buffer, const Shape& shape, ScalarType type) {
  return {.operands = {{buffer, dense_view(shape)}}, .shape = shape, .type = type};
}

bool Value::is_bounded() const {
  return std::ranges::any_of(
      operands, [this](const Builder::Seen& seen) { return seen.view.bounded(shape); });
}

Value permute(Value value, std::span<const int> order) {
  Shape shape;
  for (const int d : order) shape.append(value.shape[d]);
  return with_shape(std::move(value), shape, [order](const View& before, View& view) {
    for (size_t d = 0; d < order.size(); ++d)
      take_dimension(before, order[d], view, static_cast<int>(d));
  });
}

Value transpose(Value value, int a, int b) {
  std::vector<int> order;
  for (int d = 0; d < value.shape.rank; ++d) order.push_back(d);
  std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
  return permute(std::move(value), order);
}

Value slice(Value value, int dimension, int64_t start, int64_t count, int64_t step) {
  const auto d = static_cast<size_t>(dimension);
  Shape shape = value.shape;
  shape.dims[d] = count;
  for (const Builder::Seen& seen : value.operands)
    check(!seen.view.bounds(dimension, value.shape[dimension]), "a bounded dimension is cut");
  return with_shape(std::move(value), shape, [=](const View& before, View& view) {
    view = before;
    view.offset += start * before.strides[d];
    view.strides[d] *= step;
  });
}

Value select(Value value, int dimension, int64_t index) {
  return squeeze(slice(std::move(value), dimension, index, 1), dimension);
}

Value unsqueeze(Value value, int dimension) {
  Shape shape;
  for (int d = 0; d <= value.shape.rank; ++d) {
    if (d == dimension) shape.append(1);
    if (d < value.shape.rank) shape.append(value.shape[d]);
  }
  const int rank = value.shape.rank;
  return with_shape(std::move(value), shape, [=](const View& before, View& view) {
    for (int d = 0; d < rank; ++d) take_dimension(before, d, view, d + (d >= dimension ? 1 : 0));
  });
}

Value squeeze(Value value, int dimension) {
  Shape shape;
  for (int d = 0; d < value.shape.rank; ++d)
    if (d != dimension) shape.append(value.shape[d]);
  return with_shape(std::move(value), shape, [&shape, dimension](const View& before, View& view) {
    for (int d = 0; d < shape.rank; ++d)
      take_dimension(before, d + (d >= dimension ? 1 : 0), view, d);
  });
}

Value expand(Value value, const Shape& shape) {
  const Shape own = value.shape;
  const int more = shape.rank - own.rank;
  check(more >= 0, "a value of {} is expanded to {}", to_string(own), to_string(shape));
  return with_shape(std::move(value), shape, [=](const View& before, View& view) {
    for (int d = 0; d < own.rank; ++d)
      if (own[d] == shape[d + more]) take_dimension(before, d, view, d + more);
  });
}

std::optional<Value> reshape(Value value, const Shape& shape) {
  check(value.shape.elements() == shape.elements(), "a value of {} is reshaped to {}",
        to_string(value.shape), to_string(shape));
  for (Builder::Seen& seen : value.operands) {
    const std::optional<View> view = reshaped(seen.view, value.shape, shape);
    if (!view) return std::nullopt;
    seen.view = *view;
  }
  value.shape = shape;
  return value;
}

std::vector<int> inverse_of(std::span<const int> order) {
  std::vector<int> inverse(order.size());
  for (size_t d = 0; d < order.size(); ++d)
    inverse[static_cast<size_t>(order[d])] = static_cast<int>(d);
  return inverse;
}

std::vector<int> order_in_memory(const Value& value) {
  std::vector<int> order;
  for (int d = 0; d < value.shape.rank; ++d) order.push_back(d);
  for (const Builder::Seen& seen : value.operands) {
    const auto stride = [&](int d) { return seen.view.strides[static_cast<size_t>(d)]; };
    const bool is_whole =
        std::ranges::all_of(order, [&](int d) { return value.shape[d] == 1 || stride(d) > 0; });
    if (!is_whole) continue;
    // Dimensions of size 1 stay with the one before.
    std::vector<int64_t> outer(order.size(), 0);
    int64_t before = std::numeric_limits<int64_t>::max();
    for (const int d : order) {
      if (value.shape[d] != 1) before = stride(d);
      outer[static_cast<size_t>(d)] = before;
    }
    std::ranges::stable_sort(order, std::greater(),
                             [&](int d) { return outer[static_cast<size_t>(d)]; });
    break;
  }
  return order;
}

Shape space_of(const Shape& shape) {
  return shape.rank == 0 ? Shape{1} : shape;
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  const Shape &longer = a.rank >= b.rank ? a : b, &shorter = a.rank >= b.rank ? b : a;
  Shape result = longer;
  for (int d = 1; d <= shorter.rank; ++d) {
    const int64_t x = longer[-d], y = shorter[-d];
    if (x != y && x != 1 && y != 1) return std::nullopt;
    result.dims[static_cast<size_t>(longer.rank - d)] = x == 1 ? y : x;
  }
  return result;
}

}  // namespace dstrain::exported
