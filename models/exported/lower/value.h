// Value: a tensor of a graph while the graph becomes a program: a formula of buffers that are read through views. Nothing is
// computed until something needs its elements in memory, so views cost nothing, and pointwise operators join.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/exported/graph/scalar_type.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain::exported {

// The value of each index of `shape`, which may have no dimension: the formula of what the operands have there. Truth values
// are 1 and 0.
struct Value {
  Formula formula = Formula::input(0);
  std::vector<Builder::Seen> operands;
  Shape shape{};
  ScalarType type = ScalarType::f32;

  // Returns whether the value is what one buffer has, as it is.
  bool is_plain() const { return operands.size() == 1 && formula == Formula::input(0); }
  // Returns whether the value is a buffer's elements, in order.
  bool is_dense() const;
  // Returns whether an operand has elements at some indices alone. Such dimensions have two indices or more, and must not be
  // cut.
  bool is_bounded() const;
};

// Returns whether elements of a type are integers in the program: truth values are numbers.
inline bool is_integer(ScalarType type) {
  return !is_floating(type) && type != ScalarType::boolean;
}

// Returns a number, without dimensions.
Value number(double value, ScalarType type = ScalarType::f32);
// Returns all elements of a buffer, in order.
Value whole(BufferId buffer, const Shape& shape, ScalarType type);

// Return the value with other dimensions, as PyTorch's functions of these names do. Dimensions count from 0.
Value permute(Value value, std::span<const int> order);
// Returns the order that undoes an order of dimensions.
std::vector<int> inverse_of(std::span<const int> order);
Value transpose(Value value, int a, int b);
Value slice(Value value, int dimension, int64_t start, int64_t count, int64_t step = 1);
Value select(Value value, int dimension, int64_t index);
Value unsqueeze(Value value, int dimension);
Value squeeze(Value value, int dimension);  // of size 1
// Returns the value with the dimensions of `shape`, of which it has the last ones, of the same size or 1.
Value expand(Value value, const Shape& shape);
// Returns the value with as many elements in other dimensions; nothing where an operand must be copied for that.
std::optional<Value> reshape(Value value, const Shape& shape);

// Returns the dimensions in the order in which the first operand that has an element for each index has them in memory, the outer
// ones first.
std::vector<int> order_in_memory(const Value& value);

// Returns the index space of a shape: the shape itself, of one element where it has no dimension.
Shape space_of(const Shape& shape);

// Returns the shape that values of these shapes have together, by PyTorch's rules; nothing if they have none.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);

}  // namespace dstrain::exported
