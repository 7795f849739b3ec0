// What is left of values that lie side by side. Included once per Highway target, hence the toggled include guard.
#if defined(DSTRAIN_SIMD_REDUCE_RUNS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_REDUCE_RUNS_INL_H
#undef DSTRAIN_SIMD_REDUCE_RUNS_INL_H
#else
#define DSTRAIN_SIMD_REDUCE_RUNS_INL_H
#endif

#include "kernels/cpu/memory_bound/functions-inl.h"
#include "kernels/cpu/memory_bound/general/eight-inl.h"
#include "kernels/cpu/memory_bound/general/joined.h"
#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Returns the largest or the smallest of n values, the first zero of several.
template <bool kLargest>
SIMD_FN double extreme_of(const float* values, int64_t n) {
  const float none = kLargest ? -HUGE_VALF : HUGE_VALF;
  const auto best = [](Pack a, Pack b)
                        SIMD_INLINE { return kLargest ? any_maximum(a, b) : any_minimum(a, b); };
  Pack most[2] = {all(none), all(none)};
  int64_t i = 0;
  for (; i + 2 * kPack <= n; i += 2 * kPack) {
    most[0] = best(most[0], load(values + i));
    most[1] = best(most[1], load(values + i + kPack));
  }
  for (; i + kPack <= n; i += kPack) most[0] = best(most[0], load(values + i));
  alignas(64) float lanes[kPack];
  store(best(most[0], most[1]), lanes);
  for (; i < n; ++i) {
    float& lane = lanes[i % kPack];
    lane = static_cast<float>(joined(kLargest ? Reduction::maximum : Reduction::minimum,
                                     static_cast<double>(lane), static_cast<double>(values[i])));
  }
  float result = none;
  for (const float lane : lanes) {
    if (lane != lane) return std::numeric_limits<double>::quiet_NaN();
    if (kLargest ? lane > result : lane < result) result = lane;
  }
  if (result == 0)
    for (i = 0; i < n; ++i)
      if (values[i] == 0) return static_cast<double>(values[i]);
  return static_cast<double>(result);
}

// Returns the sum of n <= kRun values.
SIMD_FN double sum_of(const float* values, int64_t n) {
  Pack total = all(0);
  for_packs(0, n, [&](int64_t i, auto lanes) SIMD_INLINE {
    total = total + keep(lanes, load(values + i, lanes));
  });
  return static_cast<double>(sum(total));
}

// Returns what is left of n values and of `total`, which is left of those before them.
SIMD_FN double reduce_runs(Reduction kind, double total, const float* values, int64_t n) {
  if (kind == Reduction::maximum) return joined(kind, total, extreme_of<true>(values, n));
  if (kind == Reduction::minimum) return joined(kind, total, extreme_of<false>(values, n));
  for (int64_t i = 0; i < n; i += kRun) total += sum_of(values + i, std::min(kRun, n - i));
  return total;
}

#if HWY_TARGET != HWY_SCALAR
constexpr int64_t kMostShort = 24;  // terms of rows of which eight at a time are faster

// Return the sums, and the largest or smallest values, of 8 rows that follow each other, each in a lane. Terms are added as in
// the lanes of a pack, then as a tree.
SIMD_FN V8 sums_of_eight_rows(const float* values, int64_t terms) {
  V8 lanes[kPack], x[kEight];
  for (V8& lane : lanes) lane = hn::Zero(D8());
  int64_t t = 0;
  for (; t + kEight <= terms; t += kEight) {
    load_eight_by_eight(values + t, terms, x);
    V8* const here = lanes + t % kPack;
    SIMD_UNROLL
    for (int i = 0; i < kEight; ++i) here[i] = hn::Add(here[i], x[i]);
  }
  if (t < terms) {  // the last ones overlap those before
    load_eight_by_eight(values + terms - kEight, terms, x);
    for (int64_t i = t; i < terms; ++i)
      lanes[i % kPack] = hn::Add(lanes[i % kPack], x[i - terms + kEight]);
  }
  for (int half = kPack / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = hn::Add(lanes[i], lanes[i + half]);
  return lanes[0];
}

template <bool kLargest>
SIMD_FN V8 extremes_of_eight_rows(const float* values, int64_t terms) {
  V8 best = hn::Set(D8(), kLargest ? -HUGE_VALF : HUGE_VALF), x[kEight];
  for (int64_t t = 0; t < terms; t += kEight) {
    load_eight_by_eight(values + std::min(t, terms - kEight), terms, x);
    SIMD_UNROLL
    for (int i = 0; i < kEight; ++i) {
      const auto better = kLargest ? hn::Gt(x[i], best) : hn::Lt(x[i], best);
      best = hn::IfThenElse(hn::Or(better, hn::IsNaN(x[i])), x[i], best);
    }
  }
  return best;
}

void reduce_eight_rows(Reduction kind, const float* values, int64_t terms, double* parts) {
  alignas(64) float results[kEight];
  const V8 all = kind == Reduction::sum       ? sums_of_eight_rows(values, terms)
                 : kind == Reduction::maximum ? extremes_of_eight_rows<true>(values, terms)
                                              : extremes_of_eight_rows<false>(values, terms);
  hn::StoreU(all, D8(), results);
  for (int i = 0; i < kEight; ++i)
    parts[i] = joined(kind, none_of(kind), static_cast<double>(results[i]));
}
#endif

// Reduces `count` rows that follow each other.
void reduce_rows(Reduction kind, const float* values, int64_t terms, int64_t count, double* parts) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if (terms >= kEight && terms <= kMostShort)
    for (; i + kEight <= count; i += kEight)
      reduce_eight_rows(kind, values + i * terms, terms, parts + i);
#endif
  for (; i < count; ++i) parts[i] = reduce_runs(kind, none_of(kind), values + i * terms, terms);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif
