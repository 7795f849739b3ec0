// The attributes of the general ops. Each walks through an index space and reads its operands through views
// (runtime/ir/views/view.h). Everything is computed in f32, and a result is rounded once to its dtype.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/ir/formula/formula.h"
#include "runtime/ir/views/view.h"

namespace dstrain {

// The attributes of map: the result has the formula's value at each index of the space, in order.
struct MapAttrs {
  Formula formula{};
  // None: each operand has the elements of the result, or is broadcast over its rows or columns
  // (runtime/ir/views/broadcast.h).
  Shape space{};
  std::vector<View> views{};
  bool operator==(const MapAttrs&) const = default;
};

// The index space of a map, and the views of its operands: its own, or the rows and columns of its result.
struct MapWalk {
  Shape space{};
  std::vector<View> views{};
};
MapWalk walk_of(const Shape& result, std::span<const Shape> operands, const MapAttrs& attrs);

enum class Reduction : uint8_t { sum, maximum, minimum };

// The attributes of reduce: the result has an element for each index of the space's first `kept` dimensions: the sum, the
// largest or the smallest of the formula's values at the indices of the others.
struct ReduceAttrs {
  Reduction kind = Reduction::sum;
  Formula formula = Formula::input(0);
  Shape space{};
  int kept = 0;
  std::vector<View> views{};
  bool operator==(const ReduceAttrs&) const = default;
};

// Returns whether the results of a reduction lie side by side in its operands, and what it adds up does not.
bool reduces_columns(const ReduceAttrs& attrs);

// The attributes of contract: result (batch, m, n) = the sum over k of a (batch, m, k) and b (batch, n, k).
struct ContractAttrs {
  Shape batch{};
  int64_t m = 0, n = 0, k = 0;
  View a{}, b{};  // of the spaces (batch, m, k) and (batch, n, k)
  bool operator==(const ContractAttrs&) const = default;
};

// The attributes of take and put: the element of table x that belongs to an index of the space is the one that `table`
// reads, further on by the product of each operand of indices and its stride.
struct TakeAttrs {
  // One of the operands of indices, i32: `size` is how many there are, and -1 is the last one.
  struct Indices {
    View view{};
    int64_t stride = 0, size = 0;
    bool operator==(const Indices&) const = default;
  };
  Shape space{};
  View table{};
  std::vector<Indices> indices{};
  bool operator==(const TakeAttrs&) const = default;
};

// The attributes of sum_loss.
struct SumLossAttrs {
  float weight = 1;  // of the gradient, not of the loss
  bool operator==(const SumLossAttrs&) const = default;
};

}  // namespace dstrain
