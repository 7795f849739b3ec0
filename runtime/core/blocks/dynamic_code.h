// The 8-bit code of optimizer state (Dettmers et al., 2022, "8-bit Optimizers via Block-wise Quantization"), as bitsandbytes
// has it. A block is 256 consecutive values, the last one of a tensor fewer. It has one f32, the largest magnitude of its
// values (absmax), and a byte for each value: the code whose value is nearest to value / absmax, of two equally near ones
// that with the smaller magnitude. The quotient is rounded to f32. A value below 0 never gets the code of 0, but the one
// below it. A value comes back as its code's value * absmax, rounded to f32. An absmax of 0 gives zeros.
//
// Codes ascend with their values. Magnitudes have seven decades, each with twice as many values as the one below it, equally
// spaced: decade i has 10^(i-6) * (0.1 + 0.9 * (k + 0.5) / count) for k in [0, count), each operation rounded to f32, from
// right to left. Signed codes have count = 2^i of each sign there, unsigned ones 2^(i+1). Both have 0 and 1, and signed ones
// have no -1.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace dstrain {

inline constexpr int64_t kStateBlock = 256;

// The largest magnitude's number, counted from that of 0, and the signed code of 0.
inline constexpr int kSignedMagnitudes = 128, kUnsignedMagnitudes = 255, kSignedZero = 127;

inline constexpr std::array<float, 7> kDecades = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};

// Returns magnitude number `j` of the signed or of the unsigned code, in ascending order; number 0 is 0.
constexpr float dynamic_magnitude(bool is_signed, int j) {
  if (j == 0) return 0;
  if (j == (is_signed ? kSignedMagnitudes : kUnsignedMagnitudes)) return 1;
  int k = j - 1, count = is_signed ? 1 : 2, decade = 0;
  for (; k >= count; ++decade) {
    k -= count;
    count *= 2;
  }
  const float place = (static_cast<float>(k) + 0.5f) / static_cast<float>(count);
  const float scaled = 0.9f * place, shifted = scaled + 0.1f;
  return kDecades[static_cast<size_t>(decade)] * shifted;
}

// Returns the values of all codes.
constexpr std::array<float, 256> dynamic_values(bool is_signed) {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int j = is_signed ? code - kSignedZero : code;
    values[static_cast<size_t>(code)] =
        j < 0 ? -dynamic_magnitude(is_signed, -j) : dynamic_magnitude(is_signed, j);
  }
  return values;
}

// Returns the signed code of the value whose magnitude has number `j`.
constexpr int signed_code(int j, bool negative) {
  return negative ? kSignedZero - std::clamp(j, 1, kSignedMagnitudes - 1) : kSignedZero + j;
}

}  // namespace dstrain
