// Sums over rows: layer_norm_weight_grad (of d_y * xhat and of d_y) and sum_rows (of d_y). First a thread block
// sums a block of rows (runtime/ir/ops/row_blocks.h) in 32 packs of columns; each of its eight warps adds every eighth
// row. Then the blocks' sums are loaded in parallel and added in order.
// Minimum memory traffic in bytes: layer_norm_weight_grad 2 s R C, sum_rows s R N.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/norms/column_sums.cuh"
#include "runtime/core/error.h"
#include "runtime/ir/ops/row_blocks.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <class T>
struct SumsIn {
  const T *d_y, *x;  // x, mean and rstd are used with kNorm only
  const float *mean, *rstd;
  int64_t rows, c, block;
};

// partial[b][0][column] = the block's sum of d_y, partial[b][1][column] = its sum of d_y * xhat.
// SASS <?*16, false, true>: threads 256, blocks 3, loads 8
// SASS <?*16, true, true>: threads 256, blocks 3, loads 8
template <class T, bool kNorm, bool kAligned>
__global__ void __launch_bounds__(32 * kChains, 3) sum_block(SumsIn<T> in, float* partial) {
  constexpr int kN = pack_of(sizeof(T));
  constexpr int kAhead = kAligned ? (kNorm ? 4 : 8) : 2;  // rows that a thread loads at a time
  __shared__ float of_warp[kNorm ? 2 : 1][kChains][kN][32];
  const int64_t c = in.c, first = static_cast<int64_t>(blockIdx.x) * 32 * kN;
  const int64_t at = first + kN * static_cast<int64_t>(threadIdx.x);
  const int64_t begin = blockIdx.y * in.block, end = min(in.rows, begin + in.block);
  float plain[kN] = {}, normal[kN] = {};
  const auto add_rows = [&](int64_t from, auto count) {
    constexpr int kRows = decltype(count)::value;
    PackOf<kAligned, T, kN> d_y[kRows];
    [[maybe_unused]] PackOf<kAligned, T, kN> x[kRows];
    [[maybe_unused]] float mean[kRows], rstd[kRows];
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const int64_t r = from + j * kChains;
      d_y[j].load(in.d_y + r * c, at, c);
      if constexpr (kNorm) x[j].load(in.x + r * c, at, c);
    }
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      if constexpr (!kNorm) break;
      mean[j] = in.mean[from + j * kChains];
      rstd[j] = in.rstd[from + j * kChains];
    }
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      float g[kN];
      d_y[j].widen_to(g);
#pragma unroll
      for (int k = 0; k < kN; ++k) plain[k] += g[k];
      if constexpr (kNorm) {
        float v[kN];
        x[j].widen_to(v);
#pragma unroll
        for (int k = 0; k < kN; ++k) normal[k] = fmaf(g[k], (v[k] - mean[j]) * rstd[j], normal[k]);
      }
    }
  };
  if (at < c) {
    int64_t r = begin + threadIdx.y;
#pragma unroll 1
    for (; r + (kAhead - 1) * kChains < end; r += kAhead * kChains)
      add_rows(r, std::integral_constant<int, kAhead>());
#pragma unroll 1
    for (; r < end; r += kChains) add_rows(r, std::integral_constant<int, 1>());
  }
#pragma unroll
  for (int k = 0; k < kN; ++k) {
    of_warp[0][threadIdx.y][k][threadIdx.x] = plain[k];
    if (kNorm) of_warp[kNorm ? 1 : 0][threadIdx.y][k][threadIdx.x] = normal[k];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < (kNorm ? 2 : 1) * kN; i += kChains) {
    const int kind = i / kN, k = i % kN;
    float total = 0;
    for (int w = 0; w < kChains; ++w) total += of_warp[kind][w][k][threadIdx.x];
    if (at + k < c) partial[(blockIdx.y * (kNorm ? 2 : 1) + kind) * c + at + k] = total;
  }
}

// The second stage: out[kind][column] (+)= the sum over blocks of partial[block][kind][column], blocks in order. A
// thread block loads kTileColumns columns of all blocks at once.
constexpr int kMostBlocks = 256;  // of RowBlocks
constexpr int kTileColumns = 32, kSumThreads = 256;

// SASS <true>: threads 256, blocks 4, loads 8
template <bool kAligned>
__global__ void __launch_bounds__(kSumThreads, 4) add_blocks(BlockSums sums) {
  constexpr int kN = 4, kLanes = kTileColumns / kN, kRows = kSumThreads / kLanes;
  constexpr int kPacks = kMostBlocks / kRows;
  __shared__ float tile[kMostBlocks][kTileColumns];
  const int64_t c = sums.c, stride = static_cast<int64_t>(gridDim.y) * c;
  const float* partial = sums.partial + blockIdx.y * c;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTileColumns;
  const int lane = static_cast<int>(threadIdx.x) % kLanes,
            row = static_cast<int>(threadIdx.x) / kLanes;
  PackOf<kAligned, float, kN> packs[kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int64_t b = row + j * kRows;
    packs[j].load(partial + b * stride, first + kN * lane, b < sums.blocks ? c : 0);
  }
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    float v[kN];
    packs[j].widen_to(v);
#pragma unroll
    for (int k = 0; k < kN; ++k) tile[row + j * kRows][kN * lane + k] = v[k];
  }
  __syncthreads();
  const int64_t column = first + threadIdx.x;
  if (threadIdx.x >= kTileColumns || column >= c) return;
  float total = 0;
#pragma unroll 16
  for (int64_t b = 0; b < sums.blocks; ++b) total += tile[b][threadIdx.x];
  float* out = (blockIdx.y == 0 ? sums.plain : sums.normal) + column;
  *out = sums.add ? *out + total : total;
}

template <class T, bool kNorm>
void launch_sums(const LaunchContext& context, const char* name, const SumsIn<T>& in,
                 int64_t blocks, float* partial) {
  constexpr int kN = pack_of(sizeof(T));
  const Grid grid{
      dim3(static_cast<unsigned>((in.c + 32 * kN - 1) / (32 * kN)), static_cast<unsigned>(blocks)),
      dim3(32, kChains)};
  if (in.rows == 0 || in.c == 0) return;
  with_flag(whole_packs<kN>(in.c, in.d_y, in.x), [&](auto aligned) {
    launch(context.stream, name, grid, sum_block<T, kNorm, decltype(aligned)::value>, in, partial);
  });
}

}  // namespace

void add_block_sums(const LaunchContext& context, const char* name, int kinds,
                    const BlockSums& sums) {
  check(sums.blocks <= kMostBlocks, "{}: {} blocks of rows; there are at most {}", name,
        sums.blocks, kMostBlocks);
  if (sums.c == 0) return;
  const Grid grid{dim3(static_cast<unsigned>((sums.c + kTileColumns - 1) / kTileColumns),
                       static_cast<unsigned>(kinds)),
                  kSumThreads};
  with_flag(whole_packs<4>(sums.c, sums.partial), [&](auto aligned) {
    launch(context.stream, name, grid, add_blocks<decltype(aligned)::value>, sums);
  });
}

int64_t sum_rows_workspace(const KernelSpec& spec) {
  if (attrs_as<SumRowsAttrs>(spec.attrs) != SumRowsAttrs{}) return 0;
  return RowBlocks(rows(spec.in[0])).count * columns(spec.in[0]) * size_of(DType::f32);
}

int64_t layer_norm_weight_grad_workspace(const KernelSpec& spec) {
  return RowBlocks(rows(spec.in[1])).count * 2 * columns(spec.in[1]) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_sum_rows(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<SumRowsAttrs>(spec.attrs);
  const int64_t r = rows(spec.in[0]), c = columns(spec.in[0]);
  if (attrs.of_blocks)
    return kernel_of([context, r, c](const KernelCall& call) {
      add_block_sums(context, "sum_rows (blocks in order)", 1,
                     BlockSums{data<const float>(call.in, 0), r, c, data<float>(call.out, 0),
                               nullptr, call.accumulate});
    });
  return kernel_of([context, pieces = attrs.block > 0, c,
                    blocks = attrs.block > 0 ? RowBlocks(r, attrs.block) : RowBlocks(r),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* out = data<float>(call.out, 0);
    float* const partial = pieces ? out : workspace<float>(call, blocks.count * c);
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const SumsIn<T> in{
          data<const T>(call.in, 0), nullptr, nullptr, nullptr, blocks.rows, c, blocks.block};
      launch_sums<T, false>(context, "sum_rows", in, blocks.count, partial);
    });
    if (pieces) return;
    add_block_sums(context, "sum_rows (blocks in order)", 1,
                   BlockSums{partial, blocks.count, c, out, nullptr, call.accumulate});
  });
}

std::unique_ptr<Kernel> make_layer_norm_weight_grad(const KernelSpec& spec,
                                                    const LaunchContext& context) {
  return kernel_of([context, blocks = RowBlocks(rows(spec.in[1])), c = columns(spec.in[1]),
                    dtype = spec.in[1].dtype](const KernelCall& call) {
    auto* partial = workspace<float>(call, blocks.count * 2 * c);
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
    float *d_weight = data<float>(call.out, 0), *d_bias = data<float>(call.out, 1);
    add_block_sums(context, "layer_norm_weight_grad (blocks in order)", 2,
                   BlockSums{partial, blocks.count, c, d_bias, d_weight, call.accumulate});
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
