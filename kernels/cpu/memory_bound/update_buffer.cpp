// update_buffer: y = keep * y + share * sum, with two roundings (a fused multiply-add), or the sum itself in a first
// update that begins with it. Does nothing if state->skip is set. Minimum memory traffic: 12 bytes per element.
#include <algorithm>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/update_buffer.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void update_buffer_range(float keep, float share, const float* sum, float* y, int64_t begin,
                         int64_t end) {
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    store(fma(all(keep), load(y + i, n), all(share) * load(sum + i, n)), y + i, n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_update_buffer(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]),
                    attrs = attrs_as<UpdateBufferAttrs>(spec.attrs)](const KernelCall& call) {
    if (call.state->skip) return;
    const auto* sum = data<const float>(call.in, 0);
    auto* y = data<float>(call.out, 0);
    const bool begins = attrs.begins_with_sum && call.state->applied_steps == 0;
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      if (begins)
        std::copy(sum + begin, sum + end, y + begin);
      else
        DSTRAIN_BEST(update_buffer_range)(attrs.keep, attrs.share, sum, y, begin, end);
    });
  });
}

}  // namespace dstrain::simd
#endif
