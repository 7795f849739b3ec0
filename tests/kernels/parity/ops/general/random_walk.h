// Operands of the general ops with random values and views, and a formula's value of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/kernels/parity/ops/run_op.h"
#include "tests/support/random_views.h"

namespace dstrain::parity {

// Checks that each element is within a part of the largest one, or of 16 bits one rounding.
inline void require_near(const char* name, const std::vector<double>& got,
                         const std::vector<double>& expected, DType dtype, double of_largest) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  Tolerance tolerance = rounding_of(dtype);
  tolerance.absolute += of_largest * largest;
  if (dtype == DType::f32) tolerance.relative = 0;
  require_close(name, got, expected, tolerance);
}

inline double value_at(const Operand& operand, const View& view, const View::Numbers& index) {
  const int64_t element = element_at(view, index);
  return element < 0 ? 0 : operand.values[static_cast<size_t>(element)];
}

inline Operand random_operand(int64_t elements, DType dtype, uint64_t seed) {
  return {{elements}, dtype, rounded(normal_values(elements, seed), dtype)};
}

// Operands with random views of a space, of the dtype or f32.
struct RandomWalk {
  std::vector<View> views{};
  std::vector<Operand> in{};

  RandomWalk(Draw& draw, const Shape& space, size_t operands, DType dtype, bool bounds) {
    for (size_t i = 0; i < operands; ++i) {
      const RandomOperand of = random_view(draw, space, bounds);
      views.push_back(of.view);
      const DType type = draw.once_in(3) ? DType::f32 : dtype;
      in.push_back(random_operand(of.elements, type, static_cast<uint64_t>(draw(1, 1 << 20))));
    }
  }

  double value(const Formula& formula, const View::Numbers& index) const {
    std::vector<double> values, inside;
    for (size_t i = 0; i < in.size(); ++i) {
      values.push_back(value_at(in[i], views[i], index));
      inside.push_back(element_at(views[i], index) < 0 ? 0 : 1);
    }
    return formula.value(values, inside);
  }
};

}  // namespace dstrain::parity
