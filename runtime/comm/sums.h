// Sums over ranks: element i of the result is ((s0[i] + s1[i]) + s2[i]) + ..., added in fp32 for f32,
// bf16 and f16 (f64 in f64, i32 modulo 2^32) and rounded once, to nearest even. Pure and element-wise,
// so the result does not depend on where a range begins or ends. Highway picks the instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/dtype.h"

namespace dstrain {

// Writes the sum of the n elements at each of `sources` to all of `destinations`. A destination may
// be one of the sources, but not overlap it otherwise. Alignment: that of the element.
void sum_in_order(DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, int64_t n);

}  // namespace dstrain
