#include "kernels/cpu/memory_bound/general/move_values.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/general/move_values.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void move_row(ValueRow from, ValueRow to, int64_t n, bool accumulate) {
  with_type(from.dtype, [=](auto of_from) SIMD_INLINE {
    with_type(to.dtype, [=](auto of_to) SIMD_INLINE {
      const auto* const read = static_cast<const decltype(of_from)*>(from.data);
      auto* const written = static_cast<decltype(of_to)*>(to.data);
      for_packs(0, n, [=](int64_t i, auto lanes) SIMD_INLINE {
        const Pack value = load(read + i, lanes);
        store(accumulate ? load(written + i, lanes) + value : value, written + i, lanes);
      });
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

void move_values(ValueRow from, ValueRow to, int64_t n, bool accumulate) {
  if (from.dtype == to.dtype && !accumulate)
    std::memcpy(to.data, from.data, static_cast<size_t>(n * size_of(to.dtype)));
  else
    DSTRAIN_BEST(move_row)(from, to, n, accumulate);
}

}  // namespace dstrain::simd
#endif
