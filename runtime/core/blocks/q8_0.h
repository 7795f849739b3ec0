// ggml's format q8_0: blocks of 32 values, each a scale in f16 and 32 codes of a byte (two's complement), 34 bytes.
//   d = largest magnitude of the block / 127, a quotient in f32; code = value * (1 / d), rounded to nearest, halves away from
//   zero; 0 where d is 0. The file has d rounded to f16. A value comes back as code * scale.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dstrain {

inline constexpr int64_t kQ80Values = 32, kQ80Bytes = 34;  // of a block

// Returns the bytes of so many values, a multiple of 32.
constexpr int64_t q8_0_bytes(int64_t values) {
  return values / kQ80Values * kQ80Bytes;
}

// Packs `values` values, a multiple of 32, into q8_0_bytes(values) bytes at any address. Returns false if a value is inf or
// NaN, or so large that a scale is inf: what is packed then has no meaning.
bool pack_q8_0(const float* x, int64_t values, std::byte* packed);

}  // namespace dstrain
