#include "models/exported/lower/value.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

// Gives the value a shape, and lets `change` change the strides of each view by it.
template <class Change>
Value with_shape(Value value, const Shape& shape, const Change& change) {
  for (Builder::Seen& seen : value.operands) {
    const View::Numbers before = seen.view.strides;
    seen.view.strides = {};
    change(before, seen.view);
  }
  value.shape = shape;
  return value;
}

// Returns the shape without its dimensions of size 1, and the strides of the others.
Shape without_ones(const Shape& shape, View::Numbers& strides) {
  Shape result;
  View::Numbers kept{};
  for (int d = 0; d < shape.rank; ++d) {
    if (shape[d] == 1) continue;
    kept[static_cast<size_t>(result.rank)] = strides[static_cast<size_t>(d)];
    result.append(shape[d]);
  }
  strides = kept;
  return result;
}

// Returns the strides with which `to` walks through the same elements as `from` does; nothing if none do.
std::optional<View::Numbers> strides_of(const Shape& from, View::Numbers strides, const Shape& to) {
  const Shape old = without_ones(from, strides);
  View::Numbers result{};
  int d = old.rank - 1, r = to.rank - 1;
  while (d >= 0) {
    // The longest run of old dimensions that are walked through evenly.
    int first = d;
    int64_t run = old[d];
    const auto at = [&strides](int i) { return strides[static_cast<size_t>(i)]; };
    while (first > 0 && at(first - 1) == old[first] * at(first)) run *= old[--first];
    int64_t stride = at(d);
    for (; r >= 0 && run > 1 && run % to[r] == 0; --r) {
      result[static_cast<size_t>(r)] = to[r] == 1 ? 0 : stride;
      stride *= to[r];
      run /= to[r];
    }
    if (run != 1) return std::nullopt;
    d = first - 1;
  }
  for (; r >= 0; --r)
    if (to[r] != 1) return std::nullopt;
  return result;
}

}  // namespace

bool Value::is_dense() const {
  if (!is_plain()) return false;
  View::Numbers own = operands[0].view.strides, dense = dense_view(shape).strides;
  without_ones(shape, own);
  without_ones(shape, dense);
  return operands[0].view.offset == 0 && own == dense;
}

Value number(double value, ScalarType type) {
  return {.formula = Formula(static_cast<float>(value)), .operands = {}, .type = type};
}

Value whole(BufferId buffer, const Shape& shape, ScalarType type) {
  return {.operands = {{buffer, dense_view(shape)}}, .shape = shape, .type = type};
}

Value permute(Value value, std::span<const int> order) {
  Shape shape;
  for (const int d : order) shape.append(value.shape[d]);
  return with_shape(std::move(value), shape, [order](const View::Numbers& before, View& view) {
    for (size_t d = 0; d < order.size(); ++d)
      view.strides[d] = before[static_cast<size_t>(order[d])];
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
  return with_shape(std::move(value), shape, [=](const View::Numbers& before, View& view) {
    view.strides = before;
    view.offset += start * before[d];
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
  return with_shape(std::move(value), shape, [=](const View::Numbers& before, View& view) {
    const auto at = static_cast<size_t>(dimension);
    for (size_t d = 0; d + 1 < before.size(); ++d) view.strides[d + (d >= at ? 1 : 0)] = before[d];
    view.strides[at] = 0;
  });
}

Value squeeze(Value value, int dimension) {
  Shape shape;
  for (int d = 0; d < value.shape.rank; ++d)
    if (d != dimension) shape.append(value.shape[d]);
  return with_shape(std::move(value), shape, [=](const View::Numbers& before, View& view) {
    const auto at = static_cast<size_t>(dimension);
    for (size_t d = 0; d + 1 < before.size(); ++d) view.strides[d] = before[d + (d >= at ? 1 : 0)];
  });
}

Value expand(Value value, const Shape& shape) {
  const Shape own = value.shape;
  const int64_t more = shape.rank - own.rank;
  check(more >= 0, "a value of {} is expanded to {}", to_string(own), to_string(shape));
  return with_shape(std::move(value), shape, [=](const View::Numbers& before, View& view) {
    for (int d = 0; d < own.rank; ++d)
      view.strides[static_cast<size_t>(d + more)] =
          own[d] == shape.dims[static_cast<size_t>(d + more)] ? before[static_cast<size_t>(d)] : 0;
  });
}

std::optional<Value> reshape(Value value, const Shape& shape) {
  check(value.shape.elements() == shape.elements(), "a value of {} is reshaped to {}",
        to_string(value.shape), to_string(shape));
  for (Builder::Seen& seen : value.operands) {
    const auto strides = strides_of(value.shape, seen.view.strides, shape);
    if (!strides) return std::nullopt;
    seen.view.strides = *strides;
  }
  value.shape = shape;
  return value;
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
