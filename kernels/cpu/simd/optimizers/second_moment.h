// Where the second moment of an element is above 0.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd/kernels.h"

namespace dstrain::simd {

// Its values, or bits that say it (positive_bits).
struct SecondMoment {
  const float* values;
  const uint8_t* bits;  // null: the values say it
};

// Returns operand `i` of a call, whose dtype says which of the two it is.
inline SecondMoment second_moment_of(const KernelCall& call, size_t i) {
  return {data<const float>(call.in, i),
          call.in[i].dtype == DType::u8 ? data<const uint8_t>(call.in, i) : nullptr};
}

}  // namespace dstrain::simd
