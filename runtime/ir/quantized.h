// The formats of quantized values.
// int8: blocks of 256, each with an f32 scale. n values are packed as the scales of
// their blocks, one after another, and then n bytes, the codes (two's complement). A scale may have any address.
//   scale = largest magnitude of the block / 127, code = value / scale rounded to nearest even: from -127 to 127, so
//   the largest value does not clip. A value comes back within scale / 2, 1/254 of the block's largest magnitude, and
//   is rounded once to its dtype.
//   A block whose scale would be below 2^-126 has scale 0 and comes back as zeros; a block with an inf or a NaN comes
//   back as NaN. An f32 value within 1e-7 of the largest float may come back as inf.
// int4: blocks of 128, in four quarters of 32. n values are packed as a word of 4 bytes for each block, lowest byte
// first, and then their codes (two's complement), two in a byte, the first one in the low half. A word may have any
// address.
//   The lowest byte of a word is an exponent E. Quarter q has six bits from bit 8 + 6 q on: a multiple m, less 1, in
//   the lower five, and a sign. The quarter's scale is m * 2^(E - 127), negative if the sign is 1. A value comes back
//   as code * scale, exactly in f32.
//   wanted = the quarter's largest magnitude / kInt4Steps; 2^(E - 127) = the largest `wanted` of the block, rounded
//   down to a power of two, / 16; m = wanted / 2^(E - 127) rounded up, at least 1. The sign is such that the value of
//   the largest magnitude has a negative code, as there is one more of those: of two values that differ in sign alone
//   the negative one counts. A quarter of zeros has m 1 and sign 0.
//   code = value / scale rounded to nearest even, from -8 to 7. A value comes back within half a scale, 1/15.8 of the
//   block's largest magnitude. One that is above 7.5 scales and whose sign is not that of the quarter's largest value
//   clips: it loses 0.171 of itself at most.
//   A block whose largest `wanted` is below 2^-122 has the word 0 and comes back as zeros; a block with an inf or a NaN
//   has the word 255 and comes back as NaN. Their codes are 0.
// signs: blocks of 512, each with an f32 scale. n values are packed as the scales of their blocks and then their signs,
// eight in a byte, the first one in the lowest bit, 1 for a value below 0.
//   scale = mean of the block's magnitudes in f32: value i is added to sum i mod 32 in order, and the 32 sums are added
//   as a tree, sum k + 16 to sum k, then k + 8 and so on. A value comes back as the scale or minus the scale; 0 has the
//   sign +. The values must be finite.
#pragma once

#include <cstdint>

namespace dstrain {

// Elements.
inline constexpr int64_t kQuantizedBlock = 256;

// Returns the bytes of n packed values.
constexpr int64_t quantized_bytes(int64_t n) {
  return n + (n + kQuantizedBlock - 1) / kQuantizedBlock * int64_t{sizeof(float)};
}

inline constexpr int64_t kInt4Block = 128, kInt4Quarter = kInt4Block / 4;
inline constexpr uint32_t kInt4NaN = 255;     // the word of a block that comes back as NaN
inline constexpr float kInt4Steps = 8.4375f;  // below 8.5, so that no code is below -8

// Returns the bytes of n values packed as int4.
constexpr int64_t int4_bytes(int64_t n) {
  return (n + 1) / 2 + (n + kInt4Block - 1) / kInt4Block * int64_t{sizeof(uint32_t)};
}

inline constexpr int64_t kSignBlock = 512;

// Returns the bytes of n values packed as signs.
constexpr int64_t sign_bytes(int64_t n) {
  return (n + 7) / 8 + (n + kSignBlock - 1) / kSignBlock * int64_t{sizeof(float)};
}

}  // namespace dstrain
