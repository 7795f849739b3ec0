// The gradients of layer_norm: of its input alone, and of input, weight and bias in one pass over d_y and x.
// Minimum memory traffic in bytes: 3 s R C for either, 4 s R C with a gradient to add.
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/norms/column_sums.cuh"
#include "kernels/cuda/memory_bound/rows.cuh"
#include "kernels/joined.h"
#include "runtime/ir/ops/row_blocks.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

struct NormGrad {
  const void *d_y, *x, *weight, *add;  // add may be null
  const float *mean, *rstd;
  void* d_x;
};

// d_x = rstd * (g - mean(g) - xhat * mean(g * xhat)) + add, with g = d_y * weight.
// SASS <?*16, 4, true>: threads 128, blocks 4, loads 12
template <class T, int kHeld, bool kAligned>
__global__ void __launch_bounds__(kRowThreads, 1)
    input_grad_kernel(NormGrad o, int64_t rows, int64_t c) {
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
  const float centre = o.mean[r], scale = o.rstd[r], inverse = 1.0f / static_cast<float>(c);
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
      g[e] *= scales[e];  // zero past the row's end, so the product below is too
      normal[e] = (normal[e] - centre) * scale;
    }
  };
  float g_sum = 0, h_sum = 0;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float g[kRowPack], normal[kRowPack];
    read(k, at, g, normal);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      g_sum += g[e];
      h_sum = fmaf(g[e], normal[e], h_sum);
    }
  });
  const float g_mean = group_sum(g_sum) * inverse, h_mean = group_sum(h_sum) * inverse;
  for_row_packs<kHeld>(c, [&](int k, int64_t at) {
    float g[kRowPack], normal[kRowPack];
    read(k, at, g, normal);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) g[e] = fmaf(-normal[e], h_mean, g[e] - g_mean) * scale;
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

// all_grads_kernel has kGradThreads threads in a block, each with kPacks packs of a row, of which at most kMostOfRow warps have
// parts. With a fourth pack one block fits on a multiprocessor instead of two, and the two kernels are faster: 43 against
// 51 us for 16384 rows of 1024 on an H200.
constexpr int kGradThreads = 256, kPacks = 3, kMostOfRow = 4;

// All three gradients. A thread block has a block of rows (runtime/ir/ops/row_blocks.h), and kOfRow warps for each of as many
// chains as it has room for; these go through their rows independently of each other. A thread adds d_weight and d_bias
// of its columns in registers. All sums have the order of input_grad_kernel and of sum_block, so the bits are theirs.
// SASS <?*16, ?>: threads 256, blocks 2, loads 6
template <class T, int kOfRow>
__global__ void __launch_bounds__(kGradThreads, 2)
    all_grads_kernel(NormGrad o, RowBlocks blocks, int64_t c, float* partial) {
  constexpr int kOfChain = 32 * kOfRow, kAtOnce = kGradThreads / kOfChain;
  constexpr int kStep = kRowPack * kOfChain;  // columns of a pack of each of a chain's threads
  __shared__ Packed<T, kRowPack> weight[kPacks * kOfChain];
  __shared__ float tile[kAtOnce][kRowPack][kOfChain];
  __shared__ float of_warp[2][kAtOnce][2]
                          [kOfRow];  // used alternately, so that a row needs one barrier
  const int lane = static_cast<int>(threadIdx.x), here = static_cast<int>(threadIdx.y);
  for (int i = here * kOfChain + lane; i * kRowPack < c; i += kGradThreads)
    weight[i] = static_cast<const Packed<T, kRowPack>*>(o.weight)[i];
  __syncthreads();
  const int64_t end = blocks.end(blockIdx.x);
  const float inverse = 1.0f / static_cast<float>(c);
  int turn = 0;
#pragma unroll 1
  for (int first_chain = 0; first_chain < kChains; first_chain += kAtOnce) {
    float plain[kPacks][kRowPack] = {}, normal[kPacks][kRowPack] = {};
#pragma unroll 1
    for (int64_t first = blocks.begin(blockIdx.x) + first_chain; first < end;
         first += kChains, turn ^= 1) {
      const int64_t r = first + here;
      if (r >= end) {
        // All groups pass as many barriers: compute-sanitizer's racecheck mistakes the block's barriers below otherwise.
        if constexpr (kOfRow > 1) sync_group(1 + here, kOfChain);
        continue;
      }
      RowPack<true, T> d_ys[kPacks], xs[kPacks];
      load_row<kPacks>(d_ys, static_cast<const T*>(o.d_y) + r * c, c);
      load_row<kPacks>(xs, static_cast<const T*>(o.x) + r * c, c);
      const float centre = o.mean[r], scale = o.rstd[r];
      const auto read = [&](int k, int64_t at, float(&d_y)[kRowPack], float(&g)[kRowPack],
                            float(&hat)[kRowPack]) {
        const Packed<T, kRowPack> scales = weight[at / kRowPack];
        d_ys[k].widen_to(d_y);
        xs[k].widen_to(hat);
#pragma unroll
        for (int e = 0; e < kRowPack; ++e) {
          g[e] = d_y[e] * widen(scales.v[e]);
          hat[e] = (hat[e] - centre) * scale;
        }
      };
      float g_sum = 0, h_sum = 0;
      for_row_packs<kPacks>(c, [&](int k, int64_t at) {
        float d_y[kRowPack], g[kRowPack], hat[kRowPack];
        read(k, at, d_y, g, hat);
#pragma unroll
        for (int e = 0; e < kRowPack; ++e) {
          g_sum += g[e];
          h_sum = fmaf(g[e], hat[e], h_sum);
          plain[k][e] += d_y[e];
          normal[k][e] = fmaf(d_y[e], hat[e], normal[k][e]);
        }
      });
#pragma unroll
      for (int m = 16; m > 0; m /= 2) {
        g_sum += __shfl_xor_sync(~0u, g_sum, m);
        h_sum += __shfl_xor_sync(~0u, h_sum, m);
      }
      if constexpr (kOfRow > 1) {
        if (lane % 32 == 0) {
          of_warp[turn][here][0][lane / 32] = g_sum;
          of_warp[turn][here][1][lane / 32] = h_sum;
        }
        sync_group(1 + here, kOfChain);
        g_sum = h_sum = 0;
#pragma unroll
        for (int w = 0; w < kOfRow; ++w) {
          g_sum += of_warp[turn][here][0][w];
          h_sum += of_warp[turn][here][1][w];
        }
      }
      const float g_mean = g_sum * inverse, h_mean = h_sum * inverse;
      RowPack<true, T> before[kPacks];
      if (o.add) load_row<kPacks>(before, static_cast<const T*>(o.add) + r * c, c);
      for_row_packs<kPacks>(c, [&](int k, int64_t at) {
        float d_y[kRowPack], g[kRowPack], hat[kRowPack];
        read(k, at, d_y, g, hat);
#pragma unroll
        for (int e = 0; e < kRowPack; ++e) g[e] = fmaf(-hat[e], h_mean, g[e] - g_mean) * scale;
        if (o.add) {
          float residual[kRowPack];
          before[k].widen_to(residual);
#pragma unroll
          for (int e = 0; e < kRowPack; ++e) g[e] += residual[e];
        }
        store_pack<true>(g, static_cast<T*>(o.d_x) + r * c, at, c);
      });
    }
    // partial[block][0][column] = the sum of d_y over the chains so far, partial[block][1][column] that of d_y * xhat.
    // A column is always added by the same thread.
    const auto add_chains = [&](int k, int kind, const float(&mine)[kRowPack]) {
      __syncthreads();  // the tile of the sums before is read
#pragma unroll
      for (int e = 0; e < kRowPack; ++e) tile[here][e][lane] = mine[e];
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kRowPack; i += kAtOnce) {
        const int64_t column = k * kStep + kRowPack * lane + here + i;
        if (column >= c) break;
        float* const sum = partial + (int64_t{blockIdx.x} * 2 + kind) * c + column;
        float total = first_chain == 0 ? 0.0f : *sum;
#pragma unroll
        for (int w = 0; w < kAtOnce; ++w) total += tile[w][here + i][lane];
        *sum = total;
      }
    };
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      add_chains(k, 0, plain[k]);
      add_chains(k, 1, normal[k]);
    }
  }
}

// The warps of a row, as many as input_grad_kernel has.
unsigned warps_of_row(int64_t c) {
  return RowShape(1, c).grid.threads.x / 32;
}

// What all_grads_kernel takes: whole packs of 16-bit elements whose sums fit in the registers of a thread.
bool in_one_pass(DType dtype, int64_t c) {
  const int64_t warps = warps_of_row(c);
  return size_of(dtype) == 2 && c % kRowPack == 0 && warps <= kMostOfRow &&
         c <= warps * 32 * kRowPack * kPacks;
}

template <class T, int kOfRow>
void launch_all_grads(const LaunchContext& context, const NormGrad& o, const RowBlocks& blocks,
                      int64_t c, float* partial) {
  const Grid grid{static_cast<unsigned>(blocks.count),
                  dim3(32 * kOfRow, kGradThreads / (32 * kOfRow))};
  launch(context.stream, "layer_norm_grad", grid, all_grads_kernel<T, kOfRow>, o, blocks, c,
         partial);
}

template <class T>
void launch_all_grads(const LaunchContext& context, const NormGrad& o, const RowBlocks& blocks,
                      int64_t c, float* partial) {
  const unsigned of_row = warps_of_row(c);
  if (of_row == 1)
    launch_all_grads<T, 1>(context, o, blocks, c, partial);
  else if (of_row == 2)
    launch_all_grads<T, 2>(context, o, blocks, c, partial);
  else
    launch_all_grads<T, kMostOfRow>(context, o, blocks, c, partial);
}

}  // namespace

std::unique_ptr<Kernel> make_layer_norm_input_grad(const KernelSpec& spec,
                                                   const LaunchContext& context) {
  const int64_t r = rows(spec.in[1]), c = columns(spec.in[1]);
  return kernel_of(
      [context, r, c, shape = RowShape(r, c), dtype = spec.in[1].dtype](const KernelCall& call) {
        if (r == 0) return;
        const NormGrad o{data(call.in, 0), data(call.in, 1),        data(call.in, 2),
                         data(call.in, 5), data<float>(call.in, 3), data<float>(call.in, 4),
                         data(call.out, 0)};
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          const bool whole =
              whole_packs<kRowPack>(c, static_cast<const T*>(o.d_y), static_cast<const T*>(o.x),
                                    static_cast<const T*>(o.weight), static_cast<const T*>(o.add),
                                    static_cast<const T*>(o.d_x));
          with_flag(whole, [&](auto aligned) {
            constexpr bool kAligned = decltype(aligned)::value;
            launch(context.stream, "layer_norm_input_grad", shape.grid,
                   shape.held ? input_grad_kernel<T, kHeldPacks, kAligned>
                              : input_grad_kernel<T, 0, kAligned>,
                   o, r, c);
          });
        });
      });
}

bool layer_norm_grad_fuses(const KernelSpec& spec) {
  return in_one_pass(spec.in[1].dtype, columns(spec.in[1]));
}

int64_t layer_norm_grad_workspace(const KernelSpec& spec) {
  return joined_workspace(spec, memory_bound_workspace_bytes);
}

std::unique_ptr<Kernel> make_layer_norm_grad(const KernelSpec& spec, const LaunchContext& context) {
  std::shared_ptr<Kernel> two =
      make_joined(spec, [&](const KernelSpec& part) { return make_memory_bound(part, context); });
  return kernel_of([context, two, blocks = RowBlocks(rows(spec.in[1])), c = columns(spec.in[1]),
                    dtype = spec.in[1].dtype](const KernelCall& call) {
    const NormGrad o{data(call.in, 0), data(call.in, 1),        data(call.in, 2),
                     data(call.in, 5), data<float>(call.in, 3), data<float>(call.in, 4),
                     data(call.out, 0)};
    auto* partial = workspace<float>(call, blocks.count * 2 * c);
    const auto run = [&](auto t) {
      using T = decltype(t);
      const bool whole =
          whole_packs<kRowPack>(c, static_cast<const T*>(o.d_y), static_cast<const T*>(o.x),
                                static_cast<const T*>(o.weight), static_cast<const T*>(o.add),
                                static_cast<const T*>(o.d_x));
      if (!whole || blocks.rows == 0) return two->run(call);
      launch_all_grads<T>(context, o, blocks, c, partial);
      float *d_weight = data<float>(call.out, 1), *d_bias = data<float>(call.out, 2);
      add_block_sums(context, "layer_norm_grad (blocks in order)", 2,
                     BlockSums{partial, blocks.count, c, d_bias, d_weight, call.accumulate});
    };
    if (!in_one_pass(dtype, c))
      two->run(call);
    else if (dtype == DType::bf16)
      run(bf16{});
    else
      run(f16{});
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
