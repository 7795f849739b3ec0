#include "kernels/cpu/attention/portable.h"

#include <cmath>
#include <limits>

#include "runtime/core/isa.h"

// Compiled for scalar code, AVX2 and AVX-512 (CMakeLists.txt).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/portable.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/attention/portable_backward-inl.h"
#include "kernels/cpu/attention/portable_forward-inl.h"

#ifndef DSTRAIN_ATTENTION_PORTABLE_ONCE
#define DSTRAIN_ATTENTION_PORTABLE_ONCE
namespace dstrain::attention {
namespace {
struct TargetFunctions {
  Implementation implementation;
  void (*fill_mask_rows)(const MaskRows&);
};
}  // namespace
}  // namespace dstrain::attention
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::attention::HWY_NAMESPACE {

inline const TargetFunctions& target_functions() {
  static const TargetFunctions kFunctions{
      {kQueryBlock, kQueryBlock, kKeyBlock, bytes_of<ForwardScratch>, bytes_of<BackwardScratch>,
       forward, backward},
      mask_rows};
  return kFunctions;
}

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::attention {
namespace {

const TargetFunctions& choose() {
#if HWY_TARGETS & HWY_AVX3
  if (max_isa() >= Isa::avx512 && (hwy::SupportedTargets() & HWY_AVX3)) {
    return N_AVX3::target_functions();
  }
#endif
#if HWY_TARGETS & HWY_AVX2
  if (max_isa() >= Isa::avx2 && (hwy::SupportedTargets() & HWY_AVX2))
    return N_AVX2::target_functions();
#endif
  return HWY_STATIC_DISPATCH(target_functions)();
}

// Chosen once, because CPUID takes microseconds under a hypervisor.
const TargetFunctions& chosen() {
  static const TargetFunctions& kChosen = choose();
  return kChosen;
}

}  // namespace

const Implementation& portable_implementation() {
  return chosen().implementation;
}

void fill_mask_rows(const MaskRows& request) {
  chosen().fill_mask_rows(request);
}

}  // namespace dstrain::attention
#endif
