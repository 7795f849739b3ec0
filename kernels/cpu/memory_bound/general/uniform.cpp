// uniform: values drawn from [0, 1), by the rule of runtime/core/philox.h. A row is what a sample has side by side; it is divided
// into spans of 64 elements, the words of 16 Philox blocks. Minimum memory traffic: the result once.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/core/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/general/uniform.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "kernels/cpu/memory_bound/philox-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_UNIFORM_ONCE
#define DSTRAIN_SIMD_UNIFORM_ONCE
namespace dstrain::simd {
namespace {
constexpr int64_t kDrawn = 64;  // elements of a span
constexpr int64_t kFew = 8;     // a part of a span with fewer is drawn element by element
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Sets y to elements [begin, end) of a sample.
void draw(PhiloxKey key, uint64_t sample, int64_t begin, int64_t end, float* y) {
  const auto low = static_cast<uint32_t>(sample), high = static_cast<uint32_t>(sample >> 32);
  alignas(64) BlockWords words;
  for (int64_t span = begin / kDrawn * kDrawn; span < end; span += kDrawn) {
    const int64_t from = HWY_MAX(span, begin), to = HWY_MIN(span + kDrawn, end);
    if (to - from < kFew) {
      for (int64_t e = from; e < to; ++e)
        y[e - begin] = uniform_value(key, sample, static_cast<uint64_t>(e));
      continue;
    }
    const uint64_t block = static_cast<uint64_t>(span) / 4;
    philox_blocks(key,
                  {low, high, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)}, 2,
                  words);
    for (int64_t e = from; e < to; ++e)
      y[e - begin] = static_cast<float>(static_cast<int32_t>(words[e - span] >> 8)) * 0x1p-24f;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_uniform(const KernelSpec& spec) {
  return kernel_of([attrs = attrs_as<UniformAttrs>(spec.attrs), threads = spec.threads,
                    n = elements(spec.out[0])](const KernelCall& call) {
    auto* const y = data<float>(call.out, 0);
    const PhiloxKey key = stream_key(call.state->seed, kUniformStream + attrs.site);
    const auto first = static_cast<uint64_t>(call.state->first_sample + call.sample_offset);
    for_parts(threads, n / attrs.inner, attrs.inner, kFlatGrain / 4,
              [&](int64_t row, int64_t begin, int64_t end) {
                const auto sample = static_cast<uint64_t>(row % attrs.samples);
                const int64_t element = row / attrs.samples * attrs.inner;
                DSTRAIN_BEST(draw)
                (key, first + sample, element + begin, element + end,
                 y + row * attrs.inner + begin);
              });
  });
}

}  // namespace dstrain::simd
#endif
