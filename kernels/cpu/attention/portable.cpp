#include "kernels/cpu/attention/portable.h"

#include <cmath>
#include <limits>

#include "runtime/core/isa.h"

// AVX-512, AVX2 and plain C++; what lies between is rare enough for the last.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/portable.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/attention/portable_backward-inl.h"
#include "kernels/cpu/attention/portable_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::attention::HWY_NAMESPACE {

struct Bodies {
  Body body;
  void (*fill_mask_rows)(const MaskRows&);
};

inline const Bodies& bodies() {
  static const Bodies kBodies{
      {kQueryBlock, kQueryBlock, kKeyBlock, forward_bytes, backward_bytes, forward, backward},
      mask_rows};
  return kBodies;
}

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::attention {
namespace {

struct Chosen {
  const Body* body;
  void (*fill_mask_rows)(const MaskRows&);
};

Chosen choose() {
  const auto of = [](const auto& b) { return Chosen{&b.body, b.fill_mask_rows}; };
#if HWY_TARGETS & HWY_AVX3
  if (max_isa() >= Isa::avx512 && (hwy::SupportedTargets() & HWY_AVX3)) {
    return of(N_AVX3::bodies());
  }
#endif
#if HWY_TARGETS & HWY_AVX2
  if (max_isa() >= Isa::avx2 && (hwy::SupportedTargets() & HWY_AVX2)) return of(N_AVX2::bodies());
#endif
  return of(HWY_STATIC_DISPATCH(bodies)());
}

// Once: asking the processor what it is takes microseconds under a hypervisor.
const Chosen& chosen() {
  static const Chosen kChosen = choose();
  return kChosen;
}

}  // namespace

const Body& portable_body() {
  return *chosen().body;
}

void fill_mask_rows(const MaskRows& request) {
  chosen().fill_mask_rows(request);
}

}  // namespace dstrain::attention
#endif
