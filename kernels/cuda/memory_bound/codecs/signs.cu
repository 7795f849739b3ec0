// quantize_signs, requantize_signs and dequantize_signs (runtime/ir/quantized.h). A warp has a block; lane i has the
// values i, i + 32, ..., whose signs it finds with its warp. With state->drop_errors errors count as 0. If state->skip
// is set errors and values stay, and what is packed is zeros. Gives the bits of kernels/cpu/memory_bound/codecs/signs.cpp.
// Minimum memory traffic, bytes per element: quantize_signs 12.13, 10.13 where x has 16 bits, of K senders
// requantize_signs 8.13 + 0.13 K, dequantize_signs 4.13.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "runtime/ir/quantized.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kWarps = 8, kOfLane = kSignBlock / 32;

__host__ __device__ int64_t block_count(int64_t n) {
  return (n + kSignBlock - 1) / kSignBlock;
}

Grid grid_of(int64_t blocks) {
  return Grid{static_cast<unsigned>((blocks + kWarps - 1) / kWarps), dim3(32, kWarps)};
}

// The block that a warp works on: `count` values from `first` on of a part of n. Warps beyond the last part have none.
struct WarpBlock {
  int64_t part, block, n, first;
  int count;

  __device__ WarpBlock(int64_t parts, int64_t of_part) : n(of_part) {
    const int64_t all = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
    part = all / block_count(n);
    block = all % block_count(n);
    first = block * kSignBlock;
    count = part >= parts ? 0 : static_cast<int>(min(kSignBlock, n - first));
  }
  // The scale and the signs of a block of a packed part, at any address.
  __device__ int64_t scale_at() const { return 4 * block; }
  __device__ int64_t signs_at() const { return 4 * block_count(n) + first / 8; }
};

__device__ float load_scale(const uint8_t* from) {
  unsigned bits = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) bits |= static_cast<unsigned>(from[k]) << (8 * k);
  return __uint_as_float(bits);
}

// Packs a warp's block, value k of the lane being v[k], and writes what is lost to `error`.
__device__ void pack(const float (&v)[kOfLane], const WarpBlock& at, uint8_t* packed, float* error,
                     bool skip) {
  const int lane = threadIdx.x;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) sum += fabsf(v[k]);
#pragma unroll
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
  const float scale = skip || at.count == 0 ? 0 : __fdiv_rn(sum, static_cast<float>(at.count));
  if (lane < 4 && at.count > 0)
    packed[at.scale_at() + lane] = static_cast<uint8_t>(__float_as_uint(scale) >> (8 * lane));
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const bool below = v[k] < 0;
    const unsigned bits = skip ? 0 : __ballot_sync(~0u, below);
    const int i = 32 * k + lane;
    if (lane < 4 && 32 * k + 8 * lane < at.count)
      packed[at.signs_at() + 4 * k + lane] = static_cast<uint8_t>(bits >> (8 * lane));
    if (i < at.count && !skip) error[i] = v[k] - (below ? -scale : scale);
  }
}

template <class X>
__global__ void __launch_bounds__(32 * kWarps)
    quantize_blocks(const X* x, SignAttrs attrs, int64_t parts, int64_t n, uint8_t* packed,
                    float* error, const StepState* state) {
  const WarpBlock at(parts, n);
  const int64_t first = at.part * n + at.first;
  const bool skip = state->skip != 0, drop_error = state->drop_errors != 0;
  const float factor =
      (attrs.gradient ? state->grad_scale : 1.0f) / static_cast<float>(attrs.ranks);
  float v[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int i = 32 * k + threadIdx.x;
    if (i >= at.count) {
      v[k] = 0;
      continue;
    }
    const float lost = drop_error ? 0.0f : error[first + i];
    v[k] = fmaf(factor, widen(x[first + i]), lost);
  }
  pack(v, at, packed + at.part * sign_bytes(n), error + first, skip);
}

__global__ void __launch_bounds__(32 * kWarps)
    requantize_blocks(const uint8_t* packed, int64_t senders, int64_t n, uint8_t* out, float* error,
                      const StepState* state) {
  const WarpBlock at(1, n);
  const bool skip = state->skip != 0;
  float v[kOfLane] = {};
  if (at.count > 0)
    for (int64_t sender = 0; sender < senders; ++sender, packed += sign_bytes(n)) {
      const float scale = load_scale(packed + at.scale_at());
#pragma unroll
      for (int k = 0; k < kOfLane; ++k) {
        const int i = 32 * k + threadIdx.x;
        if (i >= at.count) continue;
        v[k] += (packed[at.signs_at() + i / 8] >> (i % 8) & 1) != 0 ? -scale : scale;
      }
    }
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int i = 32 * k + threadIdx.x;
    if (i < at.count && state->drop_errors == 0) v[k] += error[at.first + i];
  }
  pack(v, at, out, error + at.first, skip);
}

__global__ void __launch_bounds__(32 * kWarps)
    dequantize_blocks(const uint8_t* packed, int64_t parts, int64_t n, float* y,
                      const StepState* state) {
  const WarpBlock at(parts, n);
  if (at.count == 0 || state->skip) return;
  packed += at.part * sign_bytes(n);
  const float scale = load_scale(packed + at.scale_at());
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int i = 32 * k + threadIdx.x;
    if (i >= at.count) continue;
    const bool below = (packed[at.signs_at() + i / 8] >> (i % 8) & 1) != 0;
    y[at.part * n + at.first + i] = below ? -scale : scale;
  }
}

}  // namespace

std::unique_ptr<Kernel> make_quantize_signs(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t parts = spec.out[0].shape.rank == 2 ? spec.out[0].shape[0] : 1;
  return kernel_of([context, parts, n = elements(spec.in[0]) / parts, dtype = spec.in[0].dtype,
                    attrs = attrs_as<SignAttrs>(spec.attrs)](const KernelCall& call) {
    with_type(dtype, [&](auto x) {
      launch(context.stream, "quantize_signs", grid_of(parts * block_count(n)),
             quantize_blocks<decltype(x)>, data<const decltype(x)>(call.in, 0), attrs, parts, n,
             data<uint8_t>(call.out, 0), data<float>(call.out, 1), call.state);
    });
  });
}

std::unique_ptr<Kernel> make_requantize_signs(const KernelSpec& spec,
                                              const LaunchContext& context) {
  return kernel_of(
      [context, senders = spec.in[0].shape[0], n = elements(spec.out[1])](const KernelCall& call) {
        launch(context.stream, "requantize_signs", grid_of(block_count(n)), requantize_blocks,
               data<const uint8_t>(call.in, 0), senders, n, data<uint8_t>(call.out, 0),
               data<float>(call.out, 1), call.state);
      });
}

std::unique_ptr<Kernel> make_dequantize_signs(const KernelSpec& spec,
                                              const LaunchContext& context) {
  const int64_t parts = spec.in[0].shape.rank == 2 ? spec.in[0].shape[0] : 1;
  return kernel_of([context, parts, n = elements(spec.out[0]) / parts](const KernelCall& call) {
    launch(context.stream, "dequantize_signs", grid_of(parts * block_count(n)), dequantize_blocks,
           data<const uint8_t>(call.in, 0), parts, n, data<float>(call.out, 0), call.state);
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
