// Sums over ranks: element i of the result is ((s0[i] + s1[i]) + s2[i]) + ..., added in fp32 for f32,
// bf16 and f16 (f64 in f64, i32 modulo 2^32) and rounded once, to nearest even. Pure and element-wise,
// so the result does not depend on where a range begins or ends (except which of two NaNs an addition
// keeps), nor on the instruction set, which max_isa() chooses.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/dtype.h"
#include "runtime/core/isa/isa.h"

namespace dstrain {

// Bytes. Two ranks or threads that write the same cache line slow each other down, so the parts of a sum
// begin at multiples of it.
inline constexpr int64_t kCacheLine = 64;

// Writes the sum of the n elements at each of `sources` to all of `destinations`. A destination may
// be one of the sources, and must not overlap one otherwise. Alignment: that of the element. If `before`
// is not null, it is the running sum of earlier ranks and comes first. Bits are the same with all vectors; the tests use
// up to `most`.
void sum_in_order(DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, int64_t n,
                  const std::byte* before = nullptr, Vectors most = widest_vectors());

// The dtype of a running sum: f32 for f32 and the 16-bit floats, else the dtype itself.
inline DType running_dtype(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype;
}

// Writes the same sum without rounding: n elements of running_dtype() to `running`, which may be `before`
// itself. running_sum() over the first ranks, passed as `before` to sum_in_order() over the others, gives
// the bits of sum_in_order() over all.
void running_sum(DType dtype, std::span<const std::byte* const> sources, std::byte* running,
                 int64_t n, const std::byte* before, Vectors most = widest_vectors());

}  // namespace dstrain
