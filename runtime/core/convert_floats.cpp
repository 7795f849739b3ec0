#include "runtime/core/convert_floats.h"

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Calls f(T{}) with the element type T of `dtype`.
template <class F>
void with_float_type(DType dtype, const F& f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else if (dtype == DType::f16)
    f(f16{});
  else
    f(float{});
}

float widen(float x) {
  return x;
}
template <class T>
float widen(T x) {
  return to_float(x);
}

}  // namespace

void convert_floats(const Tensor& from, const Tensor& to) {
  check(is_convertible(from.dtype) && is_convertible(to.dtype) && from.elements() == to.elements(),
        "a conversion of {} {} to {} {}", from.elements(), name_of(from.dtype), to.elements(),
        name_of(to.dtype));
  with_float_type(from.dtype, [&](auto source) {
    with_float_type(to.dtype, [&](auto target) {
      const auto* const x = from.as<const decltype(source)>();
      auto* const y = to.as<decltype(target)>();
      for (int64_t i = 0; i < from.elements(); ++i)
        y[i] = from_float<decltype(target)>(widen(x[i]));
    });
  });
}

}  // namespace dstrain
