// quantize and dequantize (runtime/ir/quantized.h). A warp has a block, a lane 8 neighbouring values. Magnitudes are
// compared as integers, so that an inf or a NaN of a block is always found. Gives the bits of
// kernels/cpu/memory_bound/codecs/quantize.cpp. Minimum memory traffic, bytes per element of s bytes: s + 1.016 each.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "runtime/ir/quantized.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kWarps = 8, kOfLane = 8;
static_assert(32 * kOfLane == kQuantizedBlock);
constexpr unsigned kInfinity = 0x7f800000u, kNaN = 0x7fc00000u, kLeastNormal = 0x00800000u;

__host__ __device__ int64_t block_count(int64_t n) {
  return (n + kQuantizedBlock - 1) / kQuantizedBlock;
}

Grid grid_of(int64_t blocks) {
  return Grid{static_cast<unsigned>((blocks + kWarps - 1) / kWarps), dim3(32, kWarps)};
}

// A scale, at any address.
__device__ void store_scale(uint8_t* to, float scale) {
  const unsigned bits = __float_as_uint(scale);
#pragma unroll
  for (int k = 0; k < 4; ++k) to[k] = static_cast<uint8_t>(bits >> (8 * k));
}
__device__ float load_scale(const uint8_t* from) {
  unsigned bits = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) bits |= static_cast<unsigned>(from[k]) << (8 * k);
  return __uint_as_float(bits);
}

using Codes = Packed<uint8_t, kOfLane>;

template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    quantize_blocks(const T* x, int64_t n, uint8_t* packed) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (block * kQuantizedBlock >= n) return;
  const int64_t at = block * kQuantizedBlock + threadIdx.x * kOfLane;
  float v[kOfLane];
  load_constant(x, at, n, v);
  unsigned largest = 0;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) largest = max(largest, __float_as_uint(v[k]) & 0x7fffffffu);
#pragma unroll
  for (int half = 16; half > 0; half /= 2)
    largest = max(largest, __shfl_xor_sync(~0u, largest, half));
  float scale = __fdiv_rn(__uint_as_float(largest), 127.0f);
  if (largest >= kInfinity)
    scale = __uint_as_float(kNaN);
  else if (scale < __uint_as_float(kLeastNormal))
    scale = 0;
  if (threadIdx.x == 0) store_scale(packed + 4 * block, scale);
  const float inverse = scale > 0 ? __fdiv_rn(1.0f, scale) : 0.0f;
  Codes codes;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k)
    codes.v[k] =
        scale > 0 ? static_cast<uint8_t>(static_cast<int>(rintf(v[k] * inverse))) : uint8_t{0};
  uint8_t* to = packed + 4 * block_count(n) + at;
  if (at + kOfLane <= n && aligned<kOfLane>(to)) {
    *reinterpret_cast<Codes*>(to) = codes;
    return;
  }
#pragma unroll
  for (int k = 0; k < kOfLane; ++k)
    if (at + k < n) to[k] = codes.v[k];
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    dequantize_blocks(const uint8_t* packed, int64_t parts, int64_t n, T* y) {
  const int64_t all = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  const int64_t part = all / block_count(n), block = all % block_count(n);
  const int64_t at = block * kQuantizedBlock + threadIdx.x * kOfLane;
  if (part >= parts || at >= n) return;
  packed += part * quantized_bytes(n);
  const float scale = load_scale(packed + 4 * block);
  const uint8_t* from = packed + 4 * block_count(n) + at;
  Codes codes{};
  if (at + kOfLane <= n && aligned<kOfLane>(from)) {
    codes = *reinterpret_cast<const Codes*>(from);
  } else {
#pragma unroll
    for (int k = 0; k < kOfLane; ++k)
      if (at + k < n) codes.v[k] = from[k];
  }
  float v[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k)
    v[k] = static_cast<float>(static_cast<int8_t>(codes.v[k])) * scale;
  store(v, y + part * n, at, n);
}

}  // namespace

std::unique_ptr<Kernel> make_quantize(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.in[0]), dtype = spec.in[0].dtype](const KernelCall& call) {
        if (n == 0) return;
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          launch(context.stream, "quantize", grid_of(block_count(n)), quantize_blocks<T>,
                 data<const T>(call.in, 0), n, data<uint8_t>(call.out, 0));
        });
      });
}

std::unique_ptr<Kernel> make_dequantize(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t parts = spec.in[0].shape.rank == 2 ? spec.in[0].shape[0] : 1;
  return kernel_of([context, parts, n = elements(spec.out[0]) / parts,
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    if (n == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(context.stream, "dequantize", grid_of(parts * block_count(n)), dequantize_blocks<T>,
             data<const uint8_t>(call.in, 0), parts, n, data<T>(call.out, 0));
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
