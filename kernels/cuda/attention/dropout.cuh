// Dropout masks of attention, computed in the order in which lanes need them. The bits are those of
// runtime/core/philox.h for element (h T + i) T + j of a sample, with query i and key j of head h of the model.
// Cost: one Philox block (about 80 integer instructions) for 8 elements, two if T is not a multiple of 8.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "runtime/core/philox.h"

namespace dstrain::DSTRAIN_BACKEND {

// Computes the dropout mask of one head of one sample.
struct DropoutSource {
  PhiloxKey key{};
  uint64_t sample = 0;
  uint32_t threshold = 0;  // 0: nothing is dropped
  uint64_t head = 0, seq = 0;

  __device__ uint64_t element(int64_t query, int64_t key_row) const {
    return (head * seq + static_cast<uint64_t>(query)) * seq + static_cast<uint64_t>(key_row);
  }

  __device__ uint32_t block_bits(uint64_t block) const {
    const PhiloxBlock r =
        philox(key, {static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32),
                     static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)});
    uint32_t bits = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      bits |= ((r[static_cast<size_t>(w)] & 0xffffu) >= threshold ? 1u : 0u) << (2 * w);
      bits |= ((r[static_cast<size_t>(w)] >> 16) >= threshold ? 2u : 0u) << (2 * w);
    }
    return bits;
  }

  // Returns eight bits: bit n is set if element first + n is kept.
  __device__ uint32_t kept_byte(uint64_t first) const {
    const uint64_t block = first / 8;
    const auto shift = static_cast<uint32_t>(first % 8);
    uint32_t bits = block_bits(block);
    if (shift != 0) bits |= block_bits(block + 1) << 8;
    return bits >> shift & 0xffu;
  }

  __device__ bool keeps(uint64_t element) const {
    return dropout_bits(key, sample, element) >= threshold;
  }
};

}  // namespace dstrain::DSTRAIN_BACKEND
