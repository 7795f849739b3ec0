// The Newton-Schulz iteration of `orthogonalize` (Jordan, 2024): the n x m matrix X (n <= m; of a taller one the
// transpose), divided by its Frobenius norm + 1e-7, is replaced five times by
//   X' = (a I + b A + c A A) X  with A = X X^T
// Its singular values come near 1, small ones the slowest. The same polynomials can be gathered on the Gram matrix A
// alone, which then follows from itself, and X is multiplied by their product Q (Q = I at first):
//   A' = (a I + Z) A (a I + Z),  Q' = (a I + Z) Q  with Z = b A + c A A
// After two steps X takes in Q, and A is computed anew, because the rounding errors of A's small eigenvalues grow.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/ir/op.h"

namespace dstrain {

inline constexpr int kNewtonSchulzSteps = 5;
inline constexpr float kNewtonSchulzA = 3.4445f, kNewtonSchulzB = -4.7750f,
                       kNewtonSchulzC = 2.0315f;
inline constexpr int kGramRestart = 2;  // steps after which X takes in Q
inline constexpr double kNewtonSchulzEps = 1e-7;

// The sizes of the matrix as the iteration sees it.
struct NewtonSchulzShape {
  int64_t n = 0, m = 0;     // n <= m
  bool transposed = false;  // the matrix is (m,n)

  NewtonSchulzShape(int64_t rows, int64_t columns)
      : n(std::min(rows, columns)), m(std::max(rows, columns)), transposed(rows > columns) {}

  // Returns the FLOPs of a step by step iteration: A, A A and their product with X in each step.
  double plain_flops() const { return kNewtonSchulzSteps * (2 * wide() + square()); }
  // Returns the FLOPs of an iteration on the Gram matrix: A and Q X twice; A A in five steps, Q' in three (the others
  // begin with I), A' in three (the restart and the end need none).
  double gram_flops() const { return 4 * wide() + (5 + 3 + 2 * 3) * square(); }

 private:
  double wide() const { return square() / static_cast<double>(n) * static_cast<double>(m); }
  double square() const {
    const auto size = static_cast<double>(n);
    return 2 * size * size * size;
  }
};

// Returns whether the iteration runs on the Gram matrix: where that is asked for and takes fewer FLOPs.
inline bool iterates_on_gram(const OrthogonalizeAttrs& attrs, const NewtonSchulzShape& shape) {
  return attrs.gram && shape.gram_flops() < shape.plain_flops();
}

inline double newton_schulz_flops(const OrthogonalizeAttrs& attrs, int64_t rows, int64_t columns) {
  const NewtonSchulzShape shape(rows, columns);
  return iterates_on_gram(attrs, shape) ? shape.gram_flops() : shape.plain_flops();
}

}  // namespace dstrain
