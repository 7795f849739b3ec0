// Elements that integers name: what reads them from a table, and what adds to them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/exported/lower/lowering.h"

namespace dstrain::exported {

// An operand of indices and the dimension of the table that it names.
struct Named {
  Value index;  // expanded to the space
  int dimension = 0;
};

// Returns the elements of a table that indices name, over a space. `places`: of each dimension of the table, the dimension of
// the space that it is, or -1 where indices name it.
Value taken(Lowering& lowering, const Value& table, const Shape& space,
            const std::vector<Named>& names, const std::vector<int>& places);

// Returns a table of this shape with the sums of the values that indices name for each of its elements. The space is the shape
// of the values.
Value put(Lowering& lowering, const Value& values, const Shape& table,
          const std::vector<Named>& names, const std::vector<int>& places);

// The space of x[i, :, j], an operator's "indices" of tensors or None: dimensions that indices name become those of the
// indices, in the place of the first one, or first where others are between them. Names are empty where all are None.
struct Indexed {
  Shape space{};
  std::vector<Named> names;
  std::vector<int> places;
};
Indexed indexed_space(Lowering& lowering, const Node& node, const Shape& shape);

// Returns rows (ids..., columns) of a table (rows, columns).
Value rows_named(Lowering& lowering, const Value& table, const Value& ids);

// Returns the elements of a dimension at these places, in this order. `name`: what the places are for a node.
Value along(Lowering& lowering, const Node& node, std::string_view name, const Value& x,
            int dimension, const std::vector<int32_t>& places);

// Returns for each dimension of a space the same number, but -1 for `named`.
std::vector<int> places_but(int rank, int named);

}  // namespace dstrain::exported
