// rms_norm and its gradients, over rows of as many columns as there are weights. Normalised values are rounded to x's
// dtype before they meet the weights or their gradients, unless the weights are centred: 1 is added to each.
// Minimum memory traffic in bytes: rms_norm 2 s R C, as a row of up to 16384 elements stays in registers between its
// passes; rms_norm_input_grad 3 s R C, 4 s R C with a gradient to add; rms_norm_weight_grad 2 s R C.
#include <type_traits>

#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/norms/column_sums.cuh"
#include "kernels/cuda/memory_bound/rows.cuh"
#include "runtime/ir/ops/row_blocks.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <class T>
__device__ __forceinline__ float as_held(float x) {
  return widen(narrow<T>(x));
}

// Returns a normalised value as it meets the weights, and what a weight multiplies it by.
template <class T, bool kCentred>
__device__ __forceinline__ float normal_value(float x) {
  if constexpr (kCentred) return x;
  return as_held<T>(x);
}
template <bool kCentred>
__device__ __forceinline__ float factor_of(float weight) {
  return kCentred ? 1.0f + weight : weight;
}

// SASS <?*16, 4, true, *>: threads 128, blocks 7, loads 8
template <class T, int kHeld, bool kAligned, bool kCentred>
__global__ void __launch_bounds__(kRowThreads, 1)
    rms_norm_kernel(const T* x, const T* weight, T* y, float* rstd, int64_t rows, int64_t c,
                    float eps) {
  const int64_t r = row_of_group();
  if (r >= rows) return;
  const T* row = x + r * c;
  constexpr int kPacks = kHeld > 0 ? kHeld : 1;
  RowPack<kAligned, T> held[kPacks], w[kPacks];
  load_row<kHeld>(held, row, c);
  if constexpr (kEarly<T, kHeld, kAligned>) load_row<kHeld>(w, weight, c);
  float square = 0;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float v[kRowPack];
    if (kHeld == 0) held[k].load(row, at, c);
    held[k].widen_to(v);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) square = fmaf(v[e], v[e], square);
  });
  const float scale = 1.0f / sqrtf(group_sum(square) * (1.0f / static_cast<float>(c)) + eps);
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float v[kRowPack], scales[kRowPack];
    if (kHeld == 0) held[k].load(row, at, c);
    if constexpr (!kEarly<T, kHeld, kAligned>) w[k].load(weight, at, c);
    held[k].widen_to(v);
    w[k].widen_to(scales);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e)
      v[e] = normal_value<T, kCentred>(v[e] * scale) * factor_of<kCentred>(scales[e]);
    store_pack<kAligned>(v, y + r * c, at, c);
  });
  if (threadIdx.x == 0) rstd[r] = scale;
}

struct RmsGrad {
  const void *d_y, *x, *weight, *add;  // add may be null
  const float* rstd;
  void* d_x;
};

// d_x = rstd * (g - xhat * mean(g * xhat)) + add, with g = d_y * factor.
// SASS <?*16, 4, true, *>: threads 128, blocks 4, loads 12
template <class T, int kHeld, bool kAligned, bool kCentred>
__global__ void __launch_bounds__(kRowThreads, 1)
    rms_input_grad_kernel(RmsGrad o, int64_t rows, int64_t c) {
  const int64_t r = row_of_group();
  if (r >= rows) return;
  const T *d_y = static_cast<const T*>(o.d_y) + r * c, *x = static_cast<const T*>(o.x) + r * c;
  const T *weight = static_cast<const T*>(o.weight),
          *add = o.add ? static_cast<const T*>(o.add) + r * c : nullptr;
  constexpr int kPacks = kHeld > 0 ? kHeld : 1;
  RowPack<kAligned, T> d_ys[kPacks], xs[kPacks], w[kPacks], before[kPacks];
  load_row<kHeld>(d_ys, d_y, c);
  load_row<kHeld>(xs, x, c);
  if constexpr (kEarly<T, kHeld, kAligned>) {
    load_row<kHeld>(w, weight, c);
    if (add) load_row<kHeld>(before, add, c);
  }
  const float scale = o.rstd[r];
  // g and xhat of a pack; both are computed twice, which costs less than registers for them.
  const auto read = [&](int k, int64_t at, float(&g)[kRowPack], float(&normal)[kRowPack]) {
    if (kHeld == 0) {
      d_ys[k].load(d_y, at, c);
      xs[k].load(x, at, c);
    }
    if constexpr (!kEarly<T, kHeld, kAligned>) w[k].load(weight, at, c);
    float scales[kRowPack];
    d_ys[k].widen_to(g);
    xs[k].widen_to(normal);
    w[k].widen_to(scales);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      g[e] *= factor_of<kCentred>(scales[e]);
      normal[e] *= scale;
    }
  };
  float sum = 0;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float g[kRowPack], normal[kRowPack];
    read(k, at, g, normal);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) sum = fmaf(g[e], normal[e], sum);
  });
  const float mean = group_sum(sum) * (1.0f / static_cast<float>(c));
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float g[kRowPack], normal[kRowPack];
    read(k, at, g, normal);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) g[e] = fmaf(-normal[e], mean, g[e]) * scale;
    if (add) {
      float residual[kRowPack];
      if constexpr (kEarly<T, kHeld, kAligned>)
        before[k].widen_to(residual);
      else
        load(add, at, c, residual);
#pragma unroll
      for (int e = 0; e < kRowPack; ++e) g[e] += residual[e];
    }
    store_pack<kAligned>(g, static_cast<T*>(o.d_x) + r * c, at, c);
  });
}

template <class T>
struct RmsSumsIn {
  const T *d_y, *x;
  const float* rstd;
  int64_t rows, c, block;
};

// partial[b][column] = the block's sum of d_y * xhat, in chains as those of layer_norm_weight_grad (column_sums.cuh).
// SASS <?*16, true, *>: threads 256, blocks 3, loads 8
template <class T, bool kAligned, bool kCentred>
__global__ void __launch_bounds__(32 * kChains, 3) rms_sum_block(RmsSumsIn<T> in, float* partial) {
  constexpr int kN = pack_of(sizeof(T));
  constexpr int kAhead = kAligned ? 4 : 2;  // rows that a thread loads at a time
  __shared__ float of_warp[kChains][kN][32];
  const int64_t c = in.c, first = static_cast<int64_t>(blockIdx.x) * 32 * kN;
  const int64_t at = first + kN * static_cast<int64_t>(threadIdx.x);
  const int64_t begin = blockIdx.y * in.block, end = min(in.rows, begin + in.block);
  float sums[kN] = {};
  const auto add_rows = [&](int64_t from, auto count) {
    constexpr int kRows = decltype(count)::value;
    PackOf<kAligned, T, kN> d_y[kRows], x[kRows];
    float rstd[kRows];
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const int64_t r = from + j * kChains;
      d_y[j].load(in.d_y + r * c, at, c);
      x[j].load(in.x + r * c, at, c);
    }
#pragma unroll
    for (int j = 0; j < kRows; ++j) rstd[j] = in.rstd[from + j * kChains];
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      float g[kN], v[kN];
      d_y[j].widen_to(g);
      x[j].widen_to(v);
#pragma unroll
      for (int k = 0; k < kN; ++k)
        sums[k] = fmaf(g[k], normal_value<T, kCentred>(v[k] * rstd[j]), sums[k]);
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
  for (int k = 0; k < kN; ++k) of_warp[threadIdx.y][k][threadIdx.x] = sums[k];
  __syncthreads();
  for (int k = static_cast<int>(threadIdx.y); k < kN; k += kChains) {
    float total = 0;
    for (int w = 0; w < kChains; ++w) total += of_warp[w][k][threadIdx.x];
    if (at + k < c) partial[blockIdx.y * c + at + k] = total;
  }
}

// Rows of c columns in `values`.
int64_t rows_of(const TensorSpec& values, int64_t c) {
  return elements(values) / std::max<int64_t>(1, c);
}

RowBlocks weight_blocks(const KernelSpec& spec) {
  return RowBlocks(rows_of(spec.in[0], elements(spec.out[0])));
}

}  // namespace

std::unique_ptr<Kernel> make_rms_norm(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t c = elements(spec.in[1]), r = rows_of(spec.in[0], c);
  return kernel_of([context, r, c, shape = RowShape(r, c),
                    attrs = attrs_as<RmsNormAttrs>(spec.attrs),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    if (r == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const T *x = data<const T>(call.in, 0), *weight = data<const T>(call.in, 1);
      T* y = data<T>(call.out, 0);
      with_flags(
          whole_packs<kRowPack>(c, x, weight, y), attrs.centred, [&](auto aligned, auto centred) {
            constexpr bool kAligned = decltype(aligned)::value, kCentred = decltype(centred)::value;
            launch(context.stream, "rms_norm", shape.grid,
                   shape.held ? rms_norm_kernel<T, kHeldPacks, kAligned, kCentred>
                              : rms_norm_kernel<T, 0, kAligned, kCentred>,
                   x, weight, y, data<float>(call.out, 1), r, c, attrs.eps);
          });
    });
  });
}

std::unique_ptr<Kernel> make_rms_norm_input_grad(const KernelSpec& spec,
                                                 const LaunchContext& context) {
  const int64_t c = elements(spec.in[2]), r = rows_of(spec.in[1], c);
  return kernel_of(
      [context, r, c, shape = RowShape(r, c), dtype = spec.in[1].dtype,
       is_centred = attrs_as<RmsNormAttrs>(spec.attrs).centred](const KernelCall& call) {
        if (r == 0) return;
        const RmsGrad o{data(call.in, 0), data(call.in, 1),        data(call.in, 2),
                        data(call.in, 4), data<float>(call.in, 3), data(call.out, 0)};
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          const bool whole =
              whole_packs<kRowPack>(c, static_cast<const T*>(o.d_y), static_cast<const T*>(o.x),
                                    static_cast<const T*>(o.weight), static_cast<const T*>(o.add),
                                    static_cast<const T*>(o.d_x));
          with_flags(whole, is_centred, [&](auto aligned, auto centred) {
            constexpr bool kAligned = decltype(aligned)::value, kCentred = decltype(centred)::value;
            launch(context.stream, "rms_norm_input_grad", shape.grid,
                   shape.held ? rms_input_grad_kernel<T, kHeldPacks, kAligned, kCentred>
                              : rms_input_grad_kernel<T, 0, kAligned, kCentred>,
                   o, r, c);
          });
        });
      });
}

int64_t rms_norm_weight_grad_workspace(const KernelSpec& spec) {
  return weight_blocks(spec).count * elements(spec.out[0]) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_rms_norm_weight_grad(const KernelSpec& spec,
                                                  const LaunchContext& context) {
  return kernel_of([context, blocks = weight_blocks(spec), c = elements(spec.out[0]),
                    is_centred = attrs_as<RmsNormAttrs>(spec.attrs).centred,
                    dtype = spec.in[1].dtype](const KernelCall& call) {
    auto* partial = workspace<float>(call, blocks.count * c);
    if (blocks.rows > 0)
      with_type(dtype, [&](auto t) {
        using T = decltype(t);
        constexpr int kN = pack_of(sizeof(T));
        const RmsSumsIn<T> in{data<const T>(call.in, 0),
                              data<const T>(call.in, 1),
                              data<float>(call.in, 2),
                              blocks.rows,
                              c,
                              blocks.block};
        const Grid grid{dim3(static_cast<unsigned>((c + 32 * kN - 1) / (32 * kN)),
                             static_cast<unsigned>(blocks.count)),
                        dim3(32, kChains)};
        with_flags(whole_packs<kN>(c, in.d_y, in.x), is_centred, [&](auto aligned, auto centred) {
          launch(context.stream, "rms_norm_weight_grad", grid,
                 rms_sum_block<T, decltype(aligned)::value, decltype(centred)::value>, in, partial);
        });
      });
    add_block_sums(
        context, "rms_norm_weight_grad (blocks in order)", 1,
        BlockSums{partial, blocks.count, c, data<float>(call.out, 0), nullptr, call.accumulate});
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
