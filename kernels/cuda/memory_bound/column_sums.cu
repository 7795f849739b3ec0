// Sums over rows: layer_norm_weight_grad (of d_y * xhat and of d_y) and sum_rows (of d_y). First a thread block
// sums a block of rows (kernels/row_blocks.h) in 32 packs of columns; each of its eight warps adds every eighth
// row. Then the blocks' sums are added in order.
// Minimum memory traffic in bytes: layer_norm_weight_grad 2 s R C, sum_rows s R N.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/row_blocks.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kWarps = 8;

template <class T>
struct SumsIn {
  const T *d_y, *x;  // x, mean and rstd are used with kNorm only
  const float *mean, *rstd;
  int64_t rows, c, block;
};

// partial[b][0][column] = the block's sum of d_y, partial[b][1][column] = its sum of d_y * xhat.
template <class T, bool kNorm>
__global__ void __launch_bounds__(32 * kWarps) sum_block(SumsIn<T> in, float* partial) {
  constexpr int kN = pack_of(sizeof(T));
  __shared__ float of_warp[kNorm ? 2 : 1][kWarps][kN][32];
  const int64_t c = in.c, first = static_cast<int64_t>(blockIdx.x) * 32 * kN;
  const int64_t at = first + kN * static_cast<int64_t>(threadIdx.x);
  const int64_t begin = blockIdx.y * in.block, end = min(in.rows, begin + in.block);
  float plain[kN] = {}, normal[kN] = {};
  if (at < c) {
#pragma unroll 4
    for (int64_t r = begin + threadIdx.y; r < end; r += kWarps) {
      float g[kN];
      load_constant(in.d_y + r * c, at, c, g);
#pragma unroll
      for (int k = 0; k < kN; ++k) plain[k] += g[k];
      if (kNorm) {
        float x[kN];
        load_constant(in.x + r * c, at, c, x);
        const float mean = in.mean[r], rstd = in.rstd[r];
#pragma unroll
        for (int k = 0; k < kN; ++k) normal[k] = fmaf(g[k], (x[k] - mean) * rstd, normal[k]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kN; ++k) {
    of_warp[0][threadIdx.y][k][threadIdx.x] = plain[k];
    if (kNorm) of_warp[kNorm ? 1 : 0][threadIdx.y][k][threadIdx.x] = normal[k];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < (kNorm ? 2 : 1) * kN; i += kWarps) {
    const int kind = i / kN, k = i % kN;
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total += of_warp[kind][w][k][threadIdx.x];
    if (at + k < c) partial[(blockIdx.y * (kNorm ? 2 : 1) + kind) * c + at + k] = total;
  }
}

// out[i] (+)= the sum over blocks of partial[block * stride + i].
struct AddBlocks {
  const float* partial;
  int64_t blocks, stride;
  float* out;
  bool add;
  __device__ void operator()(int64_t at, int64_t n) const {
    float total[4] = {};
#pragma unroll 8
    for (int64_t b = 0; b < blocks; ++b) {
      float v[4];
      load(partial + b * stride, at, n, v);
#pragma unroll
      for (int k = 0; k < 4; ++k) total[k] += v[k];
    }
    if (add) {
      float before[4];
      load(out, at, n, before);
#pragma unroll
      for (int k = 0; k < 4; ++k) total[k] = before[k] + total[k];
    }
    store(total, out, at, n);
  }
};

template <class T, bool kNorm>
void launch_sums(const LaunchContext& context, const char* name, const SumsIn<T>& in,
                 int64_t blocks, float* partial) {
  constexpr int64_t kColumns = 32 * pack_of(sizeof(T));
  const Grid grid{
      dim3(static_cast<unsigned>((in.c + kColumns - 1) / kColumns), static_cast<unsigned>(blocks)),
      dim3(32, kWarps)};
  if (in.rows > 0 && in.c > 0) launch(context.stream, name, grid, sum_block<T, kNorm>, in, partial);
}

}  // namespace

int64_t sum_rows_workspace(const KernelSpec& spec) {
  return RowBlocks(rows(spec.in[0])).count * columns(spec.in[0]) * size_of(DType::f32);
}

int64_t layer_norm_weight_grad_workspace(const KernelSpec& spec) {
  return RowBlocks(rows(spec.in[1])).count * 2 * columns(spec.in[1]) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_sum_rows(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, blocks = RowBlocks(rows(spec.in[0])), c = columns(spec.in[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* partial = call.workspace.as<float>();
    auto* out = data<float>(call.out, 0);
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const SumsIn<T> in{
          data<const T>(call.in, 0), nullptr, nullptr, nullptr, blocks.rows, c, blocks.block};
      launch_sums<T, false>(context, "sum_rows", in, blocks.count, partial);
    });
    launch_flat<4>(context, "sum_rows (blocks in order)", partial, c,
                   AddBlocks{partial, blocks.count, c, out, call.accumulate});
  });
}

std::unique_ptr<Kernel> make_layer_norm_weight_grad(const KernelSpec& spec,
                                                    const LaunchContext& context) {
  return kernel_of([context, blocks = RowBlocks(rows(spec.in[1])), c = columns(spec.in[1]),
                    dtype = spec.in[1].dtype](const KernelCall& call) {
    auto* partial = call.workspace.as<float>();
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const SumsIn<T> in{data<const T>(call.in, 0),
                         data<const T>(call.in, 1),
                         data<float>(call.in, 2),
                         data<float>(call.in, 3),
                         blocks.rows,
                         c,
                         blocks.block};
      launch_sums<T, true>(context, "layer_norm_weight_grad", in, blocks.count, partial);
    });
    for (int64_t k = 0; k < 2; ++k)  // d_weight, then d_bias
      launch_flat<4>(context, "layer_norm_weight_grad (blocks in order)", partial + (1 - k) * c, c,
                     AddBlocks{partial + (1 - k) * c, blocks.count, 2 * c,
                               data<float>(call.out, static_cast<size_t>(k)), call.accumulate});
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
