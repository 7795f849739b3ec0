// The elementwise operations are plain loops: beside 2 n m n FLOPs of a product, passes over n m elements do not count.
#include "kernels/cpu/orthogonalize.h"

#include <cmath>

#include "kernels/cpu/memory_bound/memory_bound.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "kernels/cpu/products/products.h"
#include "kernels/newton_schulz.h"
#include "kernels/operands.h"

namespace dstrain {
namespace {

using simd::kFlatGrain;
using simd::parallel_ranges;
using simd::row_grain;

// Calls put(i, j) for all elements of an (n,m) matrix; in tiles, so that a transposed one is read and written in
// whole cache lines.
template <class Put>
void for_tiles(int threads, int64_t n, int64_t m, const Put& put) {
  constexpr int64_t kTile = 16;
  const int64_t grain = std::max(kTile, row_grain(m * size_of(DType::f32)) / kTile * kTile);
  parallel_ranges(threads, n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kTile)
      for (int64_t j = 0; j < m; j += kTile)
        for (int64_t r = i; r < std::min(end, i + kTile); ++r)
          for (int64_t c = j; c < std::min(m, j + kTile); ++c) put(r, c);
  });
}

class HostMath final : public ElementwiseMath {
 public:
  explicit HostMath(int threads) : threads_(threads) {}

  void normalize(const NewtonSchulzShape& s, const float* x, const double* square_sum,
                 float* to) const override {
    const auto scale = static_cast<float>(1 / (std::sqrt(*square_sum) + kNewtonSchulzEps));
    if (!s.transposed) return combine(s.n * s.m, scale, x, 0, x, to);
    for_tiles(threads_, s.n, s.m,
              [=](int64_t i, int64_t j) { to[i * s.m + j] = scale * x[j * s.n + i]; });
  }

  void combine(int64_t count, float alpha, const float* a, float beta, const float* b,
               float* to) const override {
    parallel_ranges(threads_, count, kFlatGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = alpha * a[i] + beta * b[i];
    });
  }

  void add_diagonal(int64_t n, float alpha, float* a) const override {
    for (int64_t i = 0; i < n; ++i) a[i * n + i] += alpha;
  }

  void write(const NewtonSchulzShape& s, float alpha, const float* x, const float* z,
             float* y) const override {
    if (!s.transposed) return combine(s.n * s.m, alpha, x, 1, z, y);
    for_tiles(threads_, s.n, s.m, [=](int64_t i, int64_t j) {
      y[j * s.n + i] = alpha * x[i * s.m + j] + z[i * s.m + j];
    });
  }

 private:
  const int threads_;
};

KernelSource host_kernels() {
  return {.make =
              [](const KernelSpec& spec) {
                return family_of(spec.op) == OpFamily::product ? make_product(spec)
                                                               : make_memory_bound(spec);
              },
          .workspace_bytes =
              [](const KernelSpec& spec) {
                return family_of(spec.op) == OpFamily::product ? product_workspace_bytes(spec)
                                                               : memory_bound_workspace_bytes(spec);
              }};
}

}  // namespace

int64_t orthogonalize_workspace_bytes(const KernelSpec& spec) {
  return newton_schulz_workspace_bytes(spec, host_kernels());
}

std::unique_ptr<Kernel> make_orthogonalize(const KernelSpec& spec) {
  std::shared_ptr<const Kernel> iteration =
      make_newton_schulz(spec, host_kernels(), std::make_unique<HostMath>(spec.threads));
  return kernel_of([iteration](const KernelCall& call) {
    if (!call.state->skip) iteration->run(call);
  });
}

}  // namespace dstrain
