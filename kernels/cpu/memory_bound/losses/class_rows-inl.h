// The softmax of a row of logits: the sum of its exponentials, its loss, and the gradient of that.
//
// A row's sum is f32 within chunks of 1024 elements and f64 over chunks.
#ifndef DSTRAIN_SIMD_CLASS_ROWS_ONCE
#define DSTRAIN_SIMD_CLASS_ROWS_ONCE

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/ir/op.h"

namespace dstrain::simd {

// What a row's loss has besides the cross-entropy, which is all of it with 0 and 0.
struct LossTerms {
  double smoothing, z_loss;
  int64_t all_classes;  // that smoothing shares out

  // Returns the loss of a row: of `plain`, its cross-entropy, the logarithm of its sum of exponentials, the target's logit
  // and the sum of all logits.
  double loss(double plain, double log_sum, double target, double all) const {
    if (smoothing > 0) plain += smoothing * (target - all / static_cast<double>(all_classes));
    if (z_loss > 0) plain += z_loss * log_sum * log_sum;
    return plain;
  }
};

// The gradient of a row's loss with respect to logit i: (p_i * slope - everywhere - [i = target] * hit) * d_loss, where p_i
// is exp(logit - shift) times `scale`, which has the slope in it.
struct RowGradient {
  float shift, scale, everywhere, hit, d_loss;

  RowGradient(const LossTerms& terms, float largest, double total, float d)
      : shift(largest),
        scale(static_cast<float>(1.0 / total)),
        everywhere(static_cast<float>(terms.smoothing / static_cast<double>(terms.all_classes))),
        hit(static_cast<float>(1 - terms.smoothing)),
        d_loss(d) {
    if (terms.z_loss > 0)
      scale = static_cast<float>(
          (1 + 2 * terms.z_loss * (std::log(total) + static_cast<double>(largest))) / total);
  }
};

inline LossTerms loss_terms(const CrossEntropyAttrs& attrs, int64_t classes) {
  return {static_cast<double>(attrs.smoothing), static_cast<double>(attrs.z_loss),
          std::max<int64_t>(1, attrs.all_classes > 0 ? attrs.all_classes : classes)};
}

}  // namespace dstrain::simd
#endif

#if defined(DSTRAIN_SIMD_CLASS_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_CLASS_ROWS_INL_H
#undef DSTRAIN_SIMD_CLASS_ROWS_INL_H
#else
#define DSTRAIN_SIMD_CLASS_ROWS_INL_H
#endif

#include "kernels/cpu/memory_bound/math-inl.h"
#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// Returns the row's largest element. A NaN may be ignored here: the sum of exponentials contains it.
template <class T>
SIMD_FN float row_largest(const T* x, int64_t v) {
  const Pack lowest = all(-HUGE_VALF);
  Pack m[2] = {lowest, lowest};
  int64_t i = 0;
  for (; i + 2 * kPack <= v; i += 2 * kPack) {
    m[0] = maximum(load(x + i), m[0]);
    m[1] = maximum(load(x + i + kPack), m[1]);
  }
  for (; i + kPack <= v; i += kPack) m[0] = maximum(load(x + i), m[0]);
  if (i < v) {  // the lanes past the end repeat the last element
    alignas(64) T tail[kPack];
    for (int k = 0; k < kPack; ++k) tail[k] = x[HWY_MIN(i + k, v - 1)];
    m[1] = maximum(load(tail), m[1]);
  }
  return largest(maximum(m[0], m[1]));
}

// Returns the sum of term(i, n) over the packs of v elements.
template <class Term>
SIMD_FN double row_sum(int64_t v, Term term) {
  constexpr int64_t kStretch = 1024;
  double total = 0;
  for (int64_t begin = 0; begin < v; begin += kStretch)
    total += static_cast<double>(
        sum(sum_packs(HWY_MIN(kStretch, v - begin),
                      [=](int64_t k, auto n) SIMD_INLINE { return term(begin + k, n); })));
  return total;
}

template <class T>
SIMD_FN double exponential_sum(const T* x, int64_t v, float shift) {
  return row_sum(
      v, [=](int64_t i, auto n) SIMD_INLINE { return exponential(load(x + i, n) - all(shift)); });
}

template <class T>
SIMD_FN double logit_sum(const T* x, int64_t v) {
  return row_sum(v, [=](int64_t i, auto n) SIMD_INLINE { return load(x + i, n); });
}

// Writes the gradient of v logits to d, which may be x. target: -1 where it is none of them.
template <class T>
SIMD_FN void gradient_row(const T* x, int64_t v, int64_t target, const RowGradient& g, T* d) {
  const float at_target = target < 0 ? 0.0f : to_float(x[target]);
  const Pack shift = all(g.shift), scale = all(g.scale), everywhere = all(g.everywhere),
             d_loss = all(g.d_loss);
  const auto difference = [=](Pack logit) SIMD_INLINE {
    return exponential(logit - shift) * scale - everywhere;
  };
  for_packs(0, v, [=](int64_t i, auto n) SIMD_INLINE {
    store(difference(load(x + i, n)) * d_loss, d + i, n);
  });
  if (target >= 0) store((difference(all(at_target)) - all(g.hit)) * d_loss, d + target, First{1});
}

// Returns the loss of a row of v logits, and writes the gradient of `width` elements to d unless d is null. d may be x.
template <class T>
SIMD_FN double loss_row(const T* x, int64_t v, int64_t width, int32_t target,
                        const LossTerms& terms, float d_loss, T* d) {
  const int64_t zeros = target < 0 ? 0 : v;  // from here on, d is 0
  if (d) for_packs(zeros, width, [=](int64_t i, auto n) SIMD_INLINE { store(all(0), d + i, n); });
  if (target < 0) return 0;
  const float shift = row_largest(x, v), hit = to_float(x[target]);
  const double total = exponential_sum(x, v, shift);
  const double logits = terms.smoothing > 0 ? logit_sum(x, v) : 0;
  if (d) gradient_row(x, v, target, RowGradient(terms, shift, total, d_loss), d);
  const double log_total = std::log(total), top = static_cast<double>(shift),
               at_target = static_cast<double>(hit);
  return terms.loss(log_total + (top - at_target), log_total + top, at_target, logits);
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_CLASS_ROWS_INL_H
