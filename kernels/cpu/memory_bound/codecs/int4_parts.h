// Where int4 values are in packed parts (runtime/ir/quantized.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/ir/quantized.h"

namespace dstrain::simd {

// Bytes of a block's word, and of its codes.
inline constexpr int64_t kInt4Word = sizeof(uint32_t), kInt4BlockBytes = kInt4Block / 2;

// Returns how many blocks n values have.
constexpr int64_t int4_blocks(int64_t n) {
  return (n + kInt4Block - 1) / kInt4Block;
}

// Packed parts of n values, of which several are added: part k begins at `packed` + k * `stride`.
struct PackedParts {
  const std::byte* packed;
  int64_t count, stride, n;
};

// Returns which packed part the part `part` of `parts` becomes (Int4Attrs::group).
constexpr int64_t packed_place(int64_t part, int64_t parts, int64_t group) {
  return part % group * (parts / group) + part / group;
}

// Returns the packed parts that sum `sum` of `sums` adds, one of each of `senders`.
inline PackedParts parts_of_sum(const std::byte* packed, int64_t senders, int64_t sums, int64_t n,
                                int64_t sum) {
  return {packed + sum * int4_bytes(n), senders, sums * int4_bytes(n), n};
}

}  // namespace dstrain::simd
