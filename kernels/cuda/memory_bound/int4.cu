// quantize_int4, requantize_int4 and sum_int4 (runtime/ir/quantized.h). Eight lanes have a block, a lane 8 neighbouring
// values, so that it reads or writes 4 bytes of codes. Gives the bits of kernels/cpu/simd/codecs/int4.cpp. Minimum
// memory traffic, bytes per element of s bytes: quantize_int4 s + 0.53; of K parts that are added, 0.53 K and 0.53 or
// s.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "runtime/ir/quantized.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kThreads = 256, kOfLane = 8, kLanes = kInt4Block / kOfLane, kBytes = kOfLane / 2;
constexpr unsigned kInfinity = 0x7f800000u, kNaN = 0x7fc00000u, kLeastNormal = 0x00800000u;

__host__ __device__ int64_t block_count(int64_t n) {
  return (n + kInt4Block - 1) / kInt4Block;
}

Grid grid_of(int64_t parts, int64_t n) {
  const int64_t threads = parts * block_count(n) * kLanes;
  return Grid{static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads};
}

// What a thread works on: the values from `at` on of a part. Threads beyond the last part have no values.
struct Spot {
  int64_t part, block, at;

  __device__ Spot(int64_t parts, int64_t n) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t all = thread / kLanes, blocks = block_count(n);
    part = all / blocks;
    block = all % blocks;
    at = part < parts ? block * kInt4Block + thread % kLanes * kOfLane : n;
  }
  __device__ uint8_t* codes(uint8_t* packed, int64_t n) const {
    return packed + 2 * block_count(n) + at / 2;
  }
};

using Codes = Packed<uint8_t, kBytes>;

// Packs the values of eight neighbouring lanes, which have a block of a part of n.
__device__ void pack(const float (&v)[kOfLane], const Spot& spot, int64_t n, uint8_t* packed) {
  unsigned largest = 0;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) largest = max(largest, __float_as_uint(v[k]) & 0x7fffffffu);
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2)
    largest = max(largest, __shfl_xor_sync(~0u, largest, half));
  const unsigned exact = __float_as_uint(__fdiv_rn(__uint_as_float(largest), 7.0f));
  const unsigned bits = largest >= kInfinity   ? kNaN
                        : exact < kLeastNormal ? 0u
                                               : (exact + 0xffffu) & 0xffff0000u;
  if (spot.at >= n) return;
  if (spot.at % kInt4Block == 0) {
    uint8_t* scale = packed + 2 * spot.block;
    scale[0] = static_cast<uint8_t>(bits >> 16);
    scale[1] = static_cast<uint8_t>(bits >> 24);
  }
  const bool some = bits != 0 && bits != kNaN;
  const float inverse = some ? __fdiv_rn(1.0f, __uint_as_float(bits)) : 0.0f;
  int q[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) q[k] = some ? static_cast<int>(rintf(v[k] * inverse)) : 0;
  Codes codes;
#pragma unroll
  for (int k = 0; k < kBytes; ++k)
    codes.v[k] = static_cast<uint8_t>((q[2 * k] & 15) | ((q[2 * k + 1] & 15) << 4));
  uint8_t* to = spot.codes(packed, n);
  if (spot.at + kOfLane <= n && aligned<kBytes>(to)) {
    *reinterpret_cast<Codes*>(to) = codes;
    return;
  }
#pragma unroll
  for (int k = 0; k < kBytes; ++k)
    if (spot.at + 2 * k < n) to[k] = codes.v[k];
}

// Adds the lane's values of `count` packed parts, each `stride` bytes behind the one before, in order.
__device__ void add_parts(const uint8_t* packed, int64_t count, int64_t stride, const Spot& spot,
                          int64_t n, float (&sum)[kOfLane]) {
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) sum[k] = 0.0f;
  if (spot.at >= n) return;
  for (int64_t part = 0; part < count; ++part, packed += stride) {
    const uint8_t* scale = packed + 2 * spot.block;
    const float step = __uint_as_float(static_cast<unsigned>(scale[0]) << 16 |
                                       static_cast<unsigned>(scale[1]) << 24);
    const uint8_t* from = packed + 2 * block_count(n) + spot.at / 2;
    Codes codes{};
    if (spot.at + kOfLane <= n && aligned<kBytes>(from)) {
      codes = *reinterpret_cast<const Codes*>(from);
    } else {
#pragma unroll
      for (int k = 0; k < kBytes; ++k)
        if (spot.at + 2 * k < n) codes.v[k] = from[k];
    }
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      const int nibble = (codes.v[k / 2] >> (4 * (k % 2))) & 15;
      sum[k] += static_cast<float>((nibble ^ 8) - 8) * step;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    quantize_blocks(const T* x, int64_t parts, int64_t n, int64_t group, uint8_t* packed) {
  const Spot spot(parts, n);
  float v[kOfLane] = {};
  if (spot.at < n) load(x + spot.part * n, spot.at, n, v);
  const int64_t to = spot.part % group * (parts / group) + spot.part / group;
  pack(v, spot, n, packed + to * int4_bytes(n));
}

__global__ void __launch_bounds__(kThreads)
    requantize_blocks(const uint8_t* packed, int64_t senders, int64_t sums, int64_t n,
                      uint8_t* out) {
  const Spot spot(sums, n);
  const int64_t at = spot.part * int4_bytes(n);
  float v[kOfLane];
  add_parts(packed + at, senders, sums * int4_bytes(n), spot, n, v);
  pack(v, spot, n, out + at);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_blocks(const uint8_t* packed, int64_t senders, int64_t sums, int64_t first, int64_t wanted,
               int64_t n, bool accumulate, T* y) {
  const Spot spot(wanted, n);
  if (spot.at >= n) return;
  float v[kOfLane];
  add_parts(packed + (first + spot.part) * int4_bytes(n), senders, sums * int4_bytes(n), spot, n,
            v);
  T* to = y + spot.part * n;
  if (accumulate) {
    float before[kOfLane];
    load(to, spot.at, n, before);
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) v[k] = before[k] + v[k];
  }
  store(v, to, spot.at, n);
}

}  // namespace

std::unique_ptr<Kernel> make_quantize_int4(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<Int4Attrs>(spec.attrs);
  return kernel_of([context, attrs, n = attrs.part, parts = elements(spec.in[0]) / attrs.part,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(context.stream, "quantize_int4", grid_of(parts, n), quantize_blocks<T>,
             data<const T>(call.in, 0), parts, n, attrs.group, data<uint8_t>(call.out, 0));
    });
  });
}

std::unique_ptr<Kernel> make_requantize_int4(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = attrs_as<Int4Attrs>(spec.attrs).part,
                    senders = spec.in[0].shape[0],
                    sums = spec.in[0].shape[1]](const KernelCall& call) {
    launch(context.stream, "requantize_int4", grid_of(sums, n), requantize_blocks,
           data<const uint8_t>(call.in, 0), senders, sums, n, data<uint8_t>(call.out, 0));
  });
}

std::unique_ptr<Kernel> make_sum_int4(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<Int4Attrs>(spec.attrs);
  const Shape shape = spec.in[0].shape;
  return kernel_of([context, attrs, n = attrs.part, senders = shape.rank == 3 ? shape[0] : 1,
                    sums = shape[-2], wanted = elements(spec.out[0]) / attrs.part,
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(context.stream, "sum_int4", grid_of(wanted, n), sum_blocks<T>,
             data<const uint8_t>(call.in, 0), senders, sums, attrs.first, wanted, n,
             call.accumulate, data<T>(call.out, 0));
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
