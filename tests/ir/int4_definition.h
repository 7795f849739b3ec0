// int4 values by their definition (runtime/ir/quantized.h), block by block.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/ir/quantized.h"

namespace dstrain {

// Returns the word of a block of n values.
inline uint32_t int4_word(const float* x, size_t n) {
  float largest[4] = {}, wanted[4] = {};  // `largest` with its sign
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return 255;
    float& most = largest[i / static_cast<size_t>(kInt4Quarter)];
    const bool as_large = std::fabs(x[i]) == std::fabs(most);
    if (std::fabs(x[i]) > std::fabs(most) || (as_large && x[i] < 0)) most = x[i];
  }
  for (size_t q = 0; q < 4; ++q) wanted[q] = std::fabs(largest[q]) / kInt4Steps;
  const float most = *std::max_element(wanted, wanted + 4);
  if (most < std::ldexp(1.0f, -122)) return 0;
  const int power = std::ilogb(most) - 4;
  auto word = static_cast<uint32_t>(power + 127);
  for (unsigned q = 0; q < 4; ++q) {
    const double multiple = std::max(1.0, std::ceil(std::ldexp(double{wanted[q]}, -power)));
    const uint32_t sign = largest[q] > 0 ? 32 : 0;
    word |= (static_cast<uint32_t>(multiple) - 1 + sign) << (8 + 6 * q);
  }
  return word;
}

// Returns the scale of a quarter: infinite in a block of NaNs.
inline float int4_scale(uint32_t word, size_t quarter) {
  const auto field = static_cast<unsigned>(word >> (8 + 6 * quarter) & 63);
  const float unit = std::bit_cast<float>((word & 255) << 23);
  return (field < 32 ? 1.0f : -1.0f) * static_cast<float>(field % 32 + 1) * unit;
}

// Returns the packed bytes of one part.
inline std::vector<uint8_t> to_int4(const std::vector<float>& x) {
  const auto block = static_cast<size_t>(kInt4Block), quarter = static_cast<size_t>(kInt4Quarter);
  std::vector<uint8_t> bytes, codes;
  for (size_t first = 0; first < x.size(); first += block) {
    const size_t n = std::min(block, x.size() - first);
    const uint32_t word = int4_word(&x[first], n);
    for (unsigned k = 0; k < 4; ++k) bytes.push_back(static_cast<uint8_t>(word >> (8 * k)));
    for (size_t i = 0; i < n; ++i) {
      const bool any = word != 0 && word != 255;
      const float code =
          any ? std::nearbyint(x[first + i] * (1.0f / int4_scale(word, i / quarter))) : 0;
      codes.push_back(static_cast<uint8_t>(static_cast<int>(std::min(code, 7.0f)) & 15));
    }
  }
  codes.resize((x.size() + 1) / 2 * 2);
  for (size_t i = 0; i < codes.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(codes[i] | codes[i + 1] << 4));
  return bytes;
}

// Returns the n values that one part stands for.
inline std::vector<float> from_int4(const std::vector<uint8_t>& bytes, size_t n) {
  const auto block = static_cast<size_t>(kInt4Block), quarter = static_cast<size_t>(kInt4Quarter);
  const size_t blocks = (n + block - 1) / block;
  std::vector<float> x;
  for (size_t i = 0; i < n; ++i) {
    uint32_t word = 0;
    for (unsigned k = 0; k < 4; ++k) word |= uint32_t{bytes[4 * (i / block) + k]} << (8 * k);
    const int nibble = bytes[4 * blocks + i / 2] >> (4 * (i % 2)) & 15;
    x.push_back(static_cast<float>(nibble < 8 ? nibble : nibble - 16) *
                int4_scale(word, i % block / quarter));
  }
  return x;
}

}  // namespace dstrain
