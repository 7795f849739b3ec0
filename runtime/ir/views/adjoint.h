// The way back through a view, for gradients: the indices at which a view reads an element of its operand.
#pragma once

#include <optional>

#include "runtime/ir/views/view.h"

namespace dstrain {

// An index space whose first `kept` dimensions are the elements of an operand, in order, and whose other dimensions are
// those along which a view reads the same element. What a general op computes at an index of its own space belongs to one
// index of this one; an element that the view does not read has none.
class Adjoint {
 public:
  // Returns the adjoint of a view of an operand with `elements` elements. Nothing if the view reads an element at indices
  // that are no such dimensions, as overlapping windows do, or backwards.
  static std::optional<Adjoint> of(const View& view, const Shape& space, int64_t elements);

  const Shape& space() const { return space_; }
  int kept() const { return kept_; }
  // Returns whether there are elements that the view does not read.
  bool bounded() const { return bounded_; }
  // Returns another view of the op's index space, as a view of this one. It reads 0 where the op's space has no index.
  View through(const View& other) const;

 private:
  // A dimension of space(): the op's dimension that it has the indices of, less `first`; -1: none.
  struct Dimension {
    int of = -1;
    int64_t first = 0, size = 0;  // of the op's dimension
  };
  explicit Adjoint(const Shape& op_space) : op_space_(op_space) {}
  void append(int64_t size, Dimension dimension);

  Shape op_space_, space_;
  std::array<Dimension, Shape::kMaxRank> dimensions_{};
  int kept_ = 0;
  bool bounded_ = false;
};

}  // namespace dstrain
