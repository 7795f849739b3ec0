// sum_squares: the f64 sum of squares, first of blocks of 4096 elements, then of the blocks in order. Within a
// block, lane i mod 32 of a warp adds element i, in order, and the lanes' sums are added as a tree. The square of
// an f32 is exact in f64, so the bits are those of kernels/cpu/memory_bound/sum_squares.cpp. A warp loads 32 contiguous
// elements at any offset. Minimum memory traffic: the elements, read once. error_squares: the same of the differences
// of two operands, which are rounded to f32, and of the first one.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int kWarps = 4, kTile = 1024;

int64_t block_count(int64_t n) {
  return (n + kBlock - 1) / kBlock;
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps) square_blocks(const T* x, int64_t n, double* sums) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  const int64_t begin = block * kBlock, end = min(n, begin + kBlock);
  if (begin >= n) return;
  double chain = 0;
#pragma unroll 8
  for (int64_t i = begin + threadIdx.x; i < end; i += 32) {
    const auto wide = static_cast<double>(widen(x[i]));
    chain = fma(wide, wide, chain);
  }
  for (int half = 16; half > 0; half /= 2) chain += __shfl_down_sync(~0u, chain, half);
  if (threadIdx.x == 0) sums[block] = chain;
}

// Sums of differences go to sums[0 .. count), those of x behind them.
template <class X, class Y>
__global__ void __launch_bounds__(32 * kWarps)
    error_blocks(const X* x, const Y* y, int64_t n, int64_t count, double* sums) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  const int64_t begin = block * kBlock, end = min(n, begin + kBlock);
  if (begin >= n) return;
  double error = 0, whole = 0;
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += 32) {
    const float value = widen(x[i]);
    const auto wide = static_cast<double>(value);
    const auto wrong = static_cast<double>(value - widen(y[i]));
    whole = fma(wide, wide, whole);
    error = fma(wrong, wrong, error);
  }
  for (int half = 16; half > 0; half /= 2) {
    error += __shfl_down_sync(~0u, error, half);
    whole += __shfl_down_sync(~0u, whole, half);
  }
  if (threadIdx.x != 0) return;
  sums[block] = error;
  sums[count + block] = whole;
}

__global__ void __launch_bounds__(kTile / 4)
    sum_in_order(const double* sums, int64_t count, double* out) {
  __shared__ double tile[kTile];
  double total = 0;
  for (int64_t first = 0; first < count; first += kTile) {
    const int here = static_cast<int>(min(int64_t{kTile}, count - first));
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < here; i += kTile / 4) tile[i] = sums[first + i];
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 16
      for (int i = 0; i < here; ++i) total += tile[i];
    }
  }
  if (threadIdx.x == 0) *out = total;
}

}  // namespace

int64_t sum_squares_workspace(const KernelSpec& spec) {
  return block_count(elements(spec.in[0])) * size_of(DType::f64);
}

std::unique_ptr<Kernel> make_sum_squares(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.in[0]), dtype = spec.in[0].dtype](const KernelCall& call) {
        auto* sums = workspace<double>(call, block_count(n));
        const int64_t count = block_count(n);
        with_type(dtype, [&](auto t) {
          if (count > 0)
            launch(context.stream, "sum_squares",
                   Grid{static_cast<unsigned>((count + kWarps - 1) / kWarps), dim3(32, kWarps)},
                   square_blocks<decltype(t)>, data<const decltype(t)>(call.in, 0), n, sums);
        });
        launch(context.stream, "sum_squares (blocks in order)", Grid{1, kTile / 4}, sum_in_order,
               sums, count, data<double>(call.out, 0));
      });
}

int64_t error_squares_workspace(const KernelSpec& spec) {
  return 2 * sum_squares_workspace(spec);
}

std::unique_ptr<Kernel> make_error_squares(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), x_type = spec.in[0].dtype,
                    y_type = spec.in[1].dtype](const KernelCall& call) {
    auto* sums = workspace<double>(call, 2 * block_count(n));
    const int64_t count = block_count(n);
    with_type(x_type, [&](auto x) {
      with_type(y_type, [&](auto y) {
        using X = decltype(x);
        using Y = decltype(y);
        if (count > 0)
          launch(context.stream, "error_squares",
                 Grid{static_cast<unsigned>((count + kWarps - 1) / kWarps), dim3(32, kWarps)},
                 error_blocks<X, Y>, data<const X>(call.in, 0), data<const Y>(call.in, 1), n, count,
                 sums);
      });
    });
    for (int64_t k = 0; k < 2; ++k)
      launch(context.stream, "error_squares (blocks in order)", Grid{1, kTile / 4}, sum_in_order,
             sums + k * count, count, data<double>(call.out, 0) + k);
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
