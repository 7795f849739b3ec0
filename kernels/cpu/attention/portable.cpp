#include "kernels/cpu/attention/portable.h"

#include <cmath>
#include <limits>

// Compiled for scalar code, AVX2 and AVX-512 (CMakeLists.txt).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/portable.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/attention/portable_backward-inl.h"
#include "kernels/cpu/attention/portable_forward-inl.h"
#include "runtime/core/isa/best_variant.h"

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

const TargetFunctions& chosen() {
  return DSTRAIN_BEST(target_functions)();
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
