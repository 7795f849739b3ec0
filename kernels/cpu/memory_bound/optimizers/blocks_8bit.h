// A slot of optimizer state in 8-bit blocks, as kernels get it.
#pragma once

#include "kernels/cpu/memory_bound/optimizers/code_tables.h"
#include "kernels/operands.h"

namespace dstrain::simd {

struct Slot8Bits {
  uint8_t* codes;
  float* absmax;  // of each block
};

// Returns the slot whose codes are output `first`, and whose absmax is the next one.
inline Slot8Bits slot_of(const KernelCall& call, size_t first) {
  return {data<uint8_t>(call.out, first), data<float>(call.out, first + 1)};
}

}  // namespace dstrain::simd
