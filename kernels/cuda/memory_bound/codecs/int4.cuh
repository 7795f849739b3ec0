// Blocks of int4 values (runtime/ir/quantized.h): packed, and added. Sixteen lanes have a block, four of them a
// quarter,
// a lane 8 neighbouring values, so that it reads or writes 4 bytes of codes. Gives the bits of
// kernels/cpu/memory_bound/codecs/int4-inl.h.
#pragma once

#include "kernels/cuda/memory_bound/access.cuh"
#include "runtime/ir/quantized.h"

namespace dstrain::DSTRAIN_BACKEND::packed_int4 {

constexpr int kOfLane = 8, kLanes = kInt4Block / kOfLane, kBytes = kOfLane / 2;
constexpr int kQuarterLanes = kInt4Quarter / kOfLane, kWord = 4;
constexpr unsigned kInfinity = 0x7f800000u;

__host__ __device__ inline int64_t block_count(int64_t n) {
  return (n + kInt4Block - 1) / kInt4Block;
}

// What a thread works on: the values from `at` on of a part, in a block. Threads beyond the last part have at = n.
struct Spot {
  int64_t part, block, at;

  __device__ uint8_t* codes(uint8_t* packed, int64_t n) const {
    return packed + kWord * block_count(n) + at / 2;
  }
  __device__ int quarter() const { return static_cast<int>(at % kInt4Block / kInt4Quarter); }
};

using Codes = Packed<uint8_t, kBytes>;

// Moves a word from or to any address.
__device__ inline unsigned load_word(const uint8_t* from) {
  unsigned word = 0;
#pragma unroll
  for (int k = 0; k < kWord; ++k) word |= static_cast<unsigned>(from[k]) << (8 * k);
  return word;
}
__device__ inline void store_word(unsigned word, uint8_t* to) {
#pragma unroll
  for (int k = 0; k < kWord; ++k) to[k] = static_cast<uint8_t>(word >> (8 * k));
}

// Packs the values of sixteen neighbouring lanes, which have a block of a part of n. Returns the codes, and sets
// `scale` to the quarter's scale: 0 in a block of zeros, infinite in one of NaNs.
__device__ inline Codes pack(const float (&v)[kOfLane], const Spot& spot, int64_t n,
                             uint8_t* packed, float& scale) {
  // Magnitudes above signs.
  unsigned key = 0;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const unsigned bits = __float_as_uint(v[k]);
    key = max(key, bits << 1 | bits >> 31);
  }
#pragma unroll
  for (int half = kQuarterLanes / 2; half > 0; half /= 2)
    key = max(key, __shfl_xor_sync(~0u, key, half));
  unsigned largest = key;
#pragma unroll
  for (int half = kLanes / 2; half >= kQuarterLanes; half /= 2)
    largest = max(largest, __shfl_xor_sync(~0u, largest, half));
  largest >>= 1;
  const unsigned wanted = __float_as_uint(__fdiv_rn(__uint_as_float(largest), kInt4Steps));
  const bool bad = largest >= kInfinity, some = !bad && wanted >= 5u << 23;
  const unsigned exponent = some ? (wanted >> 23) - 4 : bad ? 255 : 0;
  unsigned field = 0;
  if (some) {
    const float exact =
        __fdiv_rn(__uint_as_float(key >> 1), kInt4Steps) * __uint_as_float((254 - exponent) << 23);
    const auto multiple = max(1u, static_cast<unsigned>(ceilf(exact)));
    field = multiple - 1 + (key > 1 && (key & 1) == 0 ? 32u : 0u);
  }
  unsigned word = field << (8 + 6 * spot.quarter());
#pragma unroll
  for (int half = kLanes / 2; half >= kQuarterLanes; half /= 2)
    word |= __shfl_xor_sync(~0u, word, half);
  const float unit = __uint_as_float(exponent << 23);
  scale = static_cast<float>(field % 32 + 1) * (field < 32 ? unit : -unit);
  Codes codes{};
  if (spot.at >= n) return codes;
  if (spot.at % kInt4Block == 0) store_word(word | exponent, packed + kWord * spot.block);
  const float inverse = some ? __fdiv_rn(1.0f, scale) : 0.0f;
  int q[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k)
    q[k] = some ? static_cast<int>(rintf(fminf(v[k] * inverse, 7.0f))) : 0;
#pragma unroll
  for (int k = 0; k < kBytes; ++k)
    codes.v[k] = static_cast<uint8_t>((q[2 * k] & 15) | ((q[2 * k + 1] & 15) << 4));
  uint8_t* to = spot.codes(packed, n);
  if (spot.at + kOfLane <= n && aligned<kBytes>(to)) {
    *reinterpret_cast<Codes*>(to) = codes;
    return codes;
  }
#pragma unroll
  for (int k = 0; k < kBytes; ++k)
    if (spot.at + 2 * k < n) to[k] = codes.v[k];
  return codes;
}

// Returns value k of a lane's codes. The product is exact.
__device__ inline float value_of(const Codes& codes, int k, float scale) {
  const int nibble = (codes.v[k / 2] >> (4 * (k % 2))) & 15;
  return static_cast<float>((nibble ^ 8) - 8) * scale;
}

// Adds the lane's values of `count` packed parts, each `stride` bytes behind the one before, in order.
__device__ inline void add_parts(const uint8_t* packed, int64_t count, int64_t stride,
                                 const Spot& spot, int64_t n, float (&sum)[kOfLane]) {
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) sum[k] = 0.0f;
  if (spot.at >= n) return;
  for (int64_t part = 0; part < count; ++part, packed += stride) {
    const unsigned word = load_word(packed + kWord * spot.block);
    const unsigned field = word >> (8 + 6 * spot.quarter()) & 63;
    const float unit = __uint_as_float((word & 255) << 23);
    const float scale = static_cast<float>(field % 32 + 1) * (field < 32 ? unit : -unit);
    const uint8_t* from = packed + kWord * block_count(n) + spot.at / 2;
    Codes codes{};
    if (spot.at + kOfLane <= n && aligned<kBytes>(from)) {
      codes = *reinterpret_cast<const Codes*>(from);
    } else {
#pragma unroll
      for (int k = 0; k < kBytes; ++k)
        if (spot.at + 2 * k < n) codes.v[k] = from[k];
    }
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) sum[k] += value_of(codes, k, scale);
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND::packed_int4
