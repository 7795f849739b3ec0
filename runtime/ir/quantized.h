// The formats of quantized values.
// int8: blocks of 256, each with an f32 scale. n values are packed as the scales of
// their blocks, one after another, and then n bytes, the codes (two's complement). A scale may have any address.
//   scale = largest magnitude of the block / 127, code = value / scale rounded to nearest even: from -127 to 127, so
//   the largest value does not clip. A value comes back within scale / 2, 1/254 of the block's largest magnitude, and
//   is rounded once to its dtype.
//   A block whose scale would be below 2^-126 has scale 0 and comes back as zeros; a block with an inf or a NaN comes
//   back as NaN. An f32 value within 1e-7 of the largest float may come back as inf.
// int4: blocks of 64, each with a bf16 scale. n values are packed as the scales of their blocks and then their codes,
// two in a byte, the first one in the low half.
//   scale = largest magnitude of the block / 7, rounded up to bf16, code = value / scale rounded to nearest even: from
//   -7 to 7. A value comes back within scale / 2, 1/13.9 of the block's largest magnitude, and exactly in f32.
//   Blocks with small scales, infs and NaNs are as those of int8.
#pragma once

#include <cstdint>

namespace dstrain {

// Elements.
inline constexpr int64_t kQuantizedBlock = 256;

// Returns the bytes of n packed values.
constexpr int64_t quantized_bytes(int64_t n) {
  return n + (n + kQuantizedBlock - 1) / kQuantizedBlock * int64_t{sizeof(float)};
}

inline constexpr int64_t kInt4Block = 64;

// Returns the bytes of n values packed as int4.
constexpr int64_t int4_bytes(int64_t n) {
  return (n + 1) / 2 + (n + kInt4Block - 1) / kInt4Block * int64_t{sizeof(uint16_t)};
}

}  // namespace dstrain
