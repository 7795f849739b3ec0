// Sums over ranks: element i of the result is ((s0[i] + s1[i]) + s2[i]) + ..., added in fp32 for f32,
// bf16 and f16 (f64 in f64, i32 modulo 2^32) and rounded once, to nearest even. Pure and element-wise,
// so the result does not depend on where a range begins or ends (but for which of two NaNs an addition
// keeps). Highway picks the instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/dtype.h"

namespace dstrain {

// Bytes that two ranks or threads had better not share: parts of a sum begin at multiples of it.
inline constexpr int64_t kCacheLine = 64;

// Writes the sum of the n elements at each of `sources` to all of `destinations`. A destination may
// be one of the sources, but not overlap it otherwise. Alignment: that of the element. `before`, where
// it is not null: the running sum of earlier ranks, which comes first.
void sum_in_order(DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, int64_t n,
                  const std::byte* before = nullptr);

// What a running sum is kept in: f32 for f32 and the 16-bit floats, else the dtype itself.
inline DType running_dtype(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype;
}

// The same sum, not rounded: n elements of running_dtype to `running`, which may be `before` itself.
// sum_in_order() over all ranks has the bits of running_sum() over the first and of sum_in_order()
// over the others with that before it.
void running_sum(DType dtype, std::span<const std::byte* const> sources, std::byte* running,
                 int64_t n, const std::byte* before);

}  // namespace dstrain
