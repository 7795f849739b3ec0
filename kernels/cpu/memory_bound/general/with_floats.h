// Chooses the element type of values in code that needs no SIMD.
#pragma once

#include "runtime/core/dtype.h"

namespace dstrain::simd {

// Calls f(T{}) with the element type T of `dtype`.
template <class F>
void with_floats(DType dtype, const F& f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else if (dtype == DType::f16)
    f(f16{});
  else
    f(float{});
}

}  // namespace dstrain::simd
