// The elementwise operations of the Newton-Schulz iteration. Minimum memory traffic: 8 bytes per element (normalize) or
// 12 (combine, write); a transposed matrix passes through tiles in shared memory.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/orthogonalize.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/newton_schulz.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));
constexpr int kTile = 32, kRows = 8;  // a block moves 32 x 32 elements, 8 rows at a time

__device__ inline float inverse_norm(const double* square_sum) {
  return static_cast<float>(1 / (sqrt(*square_sum) + kNewtonSchulzEps));
}

// to = alpha a + beta b
struct Combine {
  float alpha;
  const float* a;
  float beta;
  const float* b;
  float* to;
  const double* square_sum;  // where set: alpha is the inverse norm

  __device__ void operator()(int64_t at, int64_t n) const {
    const float scale = square_sum ? inverse_norm(square_sum) : alpha;
    float x[kN], y[kN];
    load(a, at, n, x);
    load(b, at, n, y);
#pragma unroll
    for (int k = 0; k < kN; ++k) x[k] = fmaf(scale, x[k], beta * y[k]);
    store(x, to, at, n);
  }
};

struct AddDiagonal {
  int64_t size;
  float alpha;
  float* a;

  __device__ void operator()(int64_t at, int64_t n) const {
    for (int64_t i = at < 0 ? 0 : at; i < at + kN && i < n; ++i) a[i * (size + 1)] += alpha;
  }
};

// to (columns,rows) = (alpha a + beta b)^T, where a and b are (rows,columns) and b may be null.
__global__ void __launch_bounds__(kTile* kRows)
    transpose(int64_t rows, int64_t columns, float alpha, const float* a, const float* b,
              const double* square_sum, float* to) {
  __shared__ float tile[kTile][kTile + 1];
  const float scale = square_sum ? inverse_norm(square_sum) : alpha;
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kTile,
                column = static_cast<int64_t>(blockIdx.x) * kTile;
  const auto across = static_cast<int>(threadIdx.x), down = static_cast<int>(threadIdx.y);
  for (int r = down; r < kTile; r += kRows) {
    const int64_t i = row + r, j = column + across;
    if (i >= rows || j >= columns) continue;
    const int64_t at = i * columns + j;
    tile[r][across] = b ? fmaf(scale, a[at], b[at]) : scale * a[at];
  }
  __syncthreads();
  for (int r = down; r < kTile; r += kRows) {
    const int64_t j = column + r, i = row + across;
    if (i < rows && j < columns) to[j * rows + i] = tile[across][r];
  }
}

class DeviceMath final : public ElementwiseMath {
 public:
  explicit DeviceMath(const LaunchContext& context) : context_(context) {}

  void normalize(const NewtonSchulzShape& s, const float* x, const double* square_sum,
                 float* to) const override {
    if (s.transposed) return launch_transpose(s.m, s.n, 0, x, nullptr, square_sum, to);
    launch_flat<kN>(context_, "orthogonalize (normalize)", to, s.n * s.m,
                    Combine{0, x, 0, x, to, square_sum});
  }

  void combine(int64_t count, float alpha, const float* a, float beta, const float* b,
               float* to) const override {
    launch_flat<kN>(context_, "orthogonalize (combine)", to, count,
                    Combine{alpha, a, beta, b, to, nullptr});
  }

  void add_diagonal(int64_t n, float alpha, float* a) const override {
    launch_flat<kN>(context_, "orthogonalize (diagonal)", a, n, AddDiagonal{n, alpha, a});
  }

  void write(const NewtonSchulzShape& s, float alpha, const float* x, const float* z,
             float* y) const override {
    if (s.transposed) return launch_transpose(s.n, s.m, alpha, x, z, nullptr, y);
    combine(s.n * s.m, alpha, x, 1, z, y);
  }

 private:
  void launch_transpose(int64_t rows, int64_t columns, float alpha, const float* a, const float* b,
                        const double* square_sum, float* to) const {
    const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); };
    launch(context_.stream, "orthogonalize (transpose)",
           Grid{dim3(tiles(columns), tiles(rows)), dim3(kTile, kRows)}, transpose, rows, columns,
           alpha, a, b, square_sum, to);
  }

  const LaunchContext context_;
};

// `context` is null where only workspaces are asked for.
KernelSource device_kernels(const LaunchContext& context) {
  return {.make =
              [context](const KernelSpec& spec) {
                return family_of(spec.op) == OpFamily::product ? make_product(spec, context)
                                                               : make_memory_bound(spec, context);
              },
          .workspace_bytes =
              [](const KernelSpec& spec) {
                return family_of(spec.op) == OpFamily::product ? product_workspace_bytes(spec)
                                                               : memory_bound_workspace_bytes(spec);
              }};
}

}  // namespace

int64_t orthogonalize_workspace_bytes(const KernelSpec& spec) {
  return newton_schulz_workspace_bytes(spec, device_kernels({}));
}

std::unique_ptr<Kernel> make_orthogonalize(const KernelSpec& spec, const LaunchContext& context) {
  return make_newton_schulz(spec, device_kernels(context), std::make_unique<DeviceMath>(context));
}

}  // namespace dstrain::DSTRAIN_BACKEND
