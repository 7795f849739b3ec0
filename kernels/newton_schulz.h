// The kernel of `orthogonalize` on every device: the Newton-Schulz iteration (runtime/ir/ops/newton_schulz.h) out of the
// device's f32 products and sum of squares, and of a few elementwise operations. Its bits depend on the matrix alone,
// because it is copied into scratch memory first: neither on where it lies nor on the number of threads.
#pragma once

#include <functional>
#include <memory>

#include "runtime/ir/kernel.h"
#include "runtime/ir/ops/newton_schulz.h"

namespace dstrain {

// The elementwise operations of the iteration on a device. All matrices are row-major.
class ElementwiseMath {
 public:
  virtual ~ElementwiseMath() = default;
  // to (n,m) = x / (sqrt(*square_sum) + kNewtonSchulzEps); x is (m,n) if the shape is transposed.
  virtual void normalize(const NewtonSchulzShape& shape, const float* x, const double* square_sum,
                         float* to) const = 0;
  // to = alpha a + beta b over `count` elements; `to` may be a or b.
  virtual void combine(int64_t count, float alpha, const float* a, float beta, const float* b,
                       float* to) const = 0;
  // Adds alpha to the diagonal of a (n,n).
  virtual void add_diagonal(int64_t n, float alpha, float* a) const = 0;
  // y = alpha x + z, where x and z are (n,m) and y is (m,n) if the shape is transposed.
  virtual void write(const NewtonSchulzShape& shape, float alpha, const float* x, const float* z,
                     float* y) const = 0;
};

// How a device makes the kernels of the products and of sum_squares.
struct KernelSource {
  std::function<std::unique_ptr<Kernel>(const KernelSpec&)> make;
  std::function<int64_t(const KernelSpec&)> workspace_bytes;
};

// Returns the bytes of scratch memory that the kernel of `spec` needs.
int64_t newton_schulz_workspace_bytes(const KernelSpec& spec, const KernelSource& source);

// Returns the kernel of `spec`, an orthogonalize.
std::unique_ptr<Kernel> make_newton_schulz(const KernelSpec& spec, const KernelSource& source,
                                           std::unique_ptr<ElementwiseMath> math);

}  // namespace dstrain
