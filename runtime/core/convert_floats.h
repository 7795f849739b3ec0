// Conversions between the float types on the host.
#pragma once

#include "runtime/core/tensor.h"

namespace dstrain {

// Returns whether convert_floats() takes values of this type.
constexpr bool is_convertible(DType dtype) {
  return dtype == DType::f32 || is_16bit(dtype);
}

// Writes the values of `from` to `to`, which has as many elements, rounded to nearest even where its type is narrower.
// Both are f32, bf16 or f16, in the host's memory, and do not overlap.
void convert_floats(const Tensor& from, const Tensor& to);

}  // namespace dstrain
