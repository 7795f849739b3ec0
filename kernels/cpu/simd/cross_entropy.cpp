// Softmax cross-entropy and its gradient, one row at a time while the row stays in the caches: the largest
// logit, the sum of exp(x - largest), and d = (p - [i = target]) * d_loss.
// Minimum memory traffic: 2 s R V bytes (s bytes per element; s R V without the gradient).
//
// A row's sum is f32 within chunks of 1024 elements and f64 over chunks. The losses of the rows are stored and
// then added in row order in f64, so the number of threads changes no bit. Those of earlier rows come first.
#include <cmath>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/cross_entropy.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/math-inl.h"
#include "kernels/cpu/simd/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

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

template <class T>
SIMD_FN double exponential_sum(const T* x, int64_t v, float shift) {
  constexpr int64_t kStretch = 1024;
  double total = 0;
  for (int64_t i = 0; i < v; i += kStretch) {
    const T* from = x + i;
    total += static_cast<double>(
        sum(sum_packs(HWY_MIN(kStretch, v - i), [=](int64_t k, auto n) SIMD_INLINE {
          return exponential(load(from + k, n) - all(shift));
        })));
  }
  return total;
}

// Returns the loss of a row of v logits, and writes the gradient of `width` elements to d unless d is null. d may be x.
template <class T>
SIMD_FN double loss_row(const T* x, int64_t v, int64_t width, int32_t target, float d_loss, T* d) {
  const int64_t zeros = target < 0 ? 0 : v;  // from here on, d is 0
  if (d) for_packs(zeros, width, [=](int64_t i, auto n) SIMD_INLINE { store(all(0), d + i, n); });
  if (target < 0) return 0;
  const float shift = row_largest(x, v), hit = to_float(x[target]);
  const double total = exponential_sum(x, v, shift);
  if (d) {
    const Pack scale = all(static_cast<float>(1.0 / total));
    const auto probability = [=](Pack logit)
                                 SIMD_INLINE { return exponential(logit - all(shift)) * scale; };
    for_packs(0, v, [=](int64_t i, auto n) SIMD_INLINE {
      store(probability(load(x + i, n)) * all(d_loss), d + i, n);
    });
    store((probability(all(hit)) - all(1)) * all(d_loss), d + target, First{1});
  }
  return std::log(total) + (static_cast<double>(shift) - static_cast<double>(hit));
}

void cross_entropy_rows(DType dtype, int64_t v, int64_t width, const void* logits,
                        const int32_t* targets, float d_loss, double* losses, void* d_logits,
                        int64_t begin, int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = begin; r < end; ++r)
      losses[r] = loss_row(static_cast<const T*>(logits) + r * width, v, width, targets[r], d_loss,
                           d_logits ? static_cast<T*>(d_logits) + r * width : nullptr);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

int64_t cross_entropy_workspace(const KernelSpec& spec) {
  if (attrs_as<CrossEntropyAttrs>(spec.attrs).by_row) return 0;
  return rows(spec.in[0]) * size_of(DType::f64);
}

std::unique_ptr<Kernel> make_cross_entropy(const KernelSpec& spec) {
  const int64_t width = columns(spec.in[0]);
  const auto attrs = attrs_as<CrossEntropyAttrs>(spec.attrs);
  return kernel_of([threads = spec.threads, r = rows(spec.in[0]), width,
                    v = attrs.classes > 0 ? attrs.classes : width, by_row = attrs.by_row,
                    weight = attrs.weight, earlier = present(spec.in, 2) ? elements(spec.in[2]) : 0,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* losses = by_row ? data<double>(call.out, 0) : workspace<double>(call, r);
    void* d_logits = data(call.out, 1);
    const float d_loss = d_logits ? call.state->d_loss * weight : 0.0f;
    parallel_ranges(threads, r, row_grain(8 * v), [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(cross_entropy_rows)
      (dtype, v, width, data(call.in, 0), data<const int32_t>(call.in, 1), d_loss, losses, d_logits,
       begin, end);
    });
    if (by_row) return;
    auto* loss = data<double>(call.out, 0);
    const auto* before = data<const double>(call.in, 2);
    double total = 0;
    for (int64_t i = 0; i < earlier; ++i) total += before[i];
    for (int64_t i = 0; i < r; ++i) total += losses[i];
    *loss = call.accumulate ? *loss + total : total;
  });
}

}  // namespace dstrain::simd
#endif
