// The loop of the optimizers' kernels, for every type of gradient and of 16-bit copy. Included once per Highway target,
// hence the toggled include guard.
#if defined(DSTRAIN_SIMD_UPDATE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_UPDATE_INL_H
#undef DSTRAIN_SIMD_UPDATE_INL_H
#else
#define DSTRAIN_SIMD_UPDATE_INL_H
#endif

#include "kernels/cpu/memory_bound/optimizers/update.h"
#include "kernels/cpu/memory_bound/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// Prefetch distance in elements. The square root and the division of Adam delay so many instructions that the
// hardware's out-of-order window is too short: on Sapphire Rapids prefetching saves 5 to 15 % of the time. Four
// times this distance makes Zen 4 a fifth slower; this one costs it nothing.
constexpr int64_t kPrefetchDistance = 128;

template <class T>
SIMD_FN void prefetch_changed(const T* state) {
  __builtin_prefetch(state + kPrefetchDistance, 1);
}

// Stands for the dtype of the weights' copy where there is none.
struct NoCopy {};

// `copy` points to the 16-bit weights; its type is NoCopy* if there are none, or if they are the masters.
template <class G, class M, class T, class Rule>
SIMD_FN void update_typed(const G* grad, M* master, T* copy, int64_t begin, int64_t end,
                          const Rule& rule) {
  for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
    __builtin_prefetch(grad + i + kPrefetchDistance);
    prefetch_changed(master + i);
    const Pack next = rule(i, n, load(master + i, n), load(grad + i, n));
    store(next, master + i, n);
    if constexpr (!std::is_same_v<T, NoCopy>) store(next, copy + i, n);
  });
}

template <class G, class Rule>
SIMD_FN void update_with(const G* grad, const UpdateOperands& o, int64_t begin, int64_t end,
                         const Rule& rule) {
  if (!o.copy) return update_typed(grad, o.master, static_cast<NoCopy*>(nullptr), begin, end, rule);
  with_type(o.copy_type, [&](auto t) SIMD_INLINE {
    update_typed(grad, o.master, static_cast<decltype(t)*>(o.copy), begin, end, rule);
  });
}

// Updates elements [begin, end) in one pass: rule(i, lanes, p, g) returns the new weights of the pack at i from the old
// ones and the gradient, and updates the optimizer's state at i.
template <class Rule>
SIMD_FN void update_range(const UpdateOperands& o, int64_t begin, int64_t end, const Rule& rule) {
  with_type(o.grad_type, [&](auto g) SIMD_INLINE {
    update_with(static_cast<const decltype(g)*>(o.grad), o, begin, end, rule);
  });
}

// The same for 16-bit weights that are their own masters. The gradient is f32 or of their type.
template <class Rule>
SIMD_FN void update_own_masters(const UpdateOperands& o, int64_t begin, int64_t end,
                                const Rule& rule) {
  const auto update = [&](auto* weights) SIMD_INLINE {
    using T = std::remove_pointer_t<decltype(weights)>;
    const auto of = [&](const auto* grad) SIMD_INLINE {
      update_typed(grad, weights, static_cast<NoCopy*>(nullptr), begin, end, rule);
    };
    if (o.grad_type == DType::f32)
      of(static_cast<const float*>(o.grad));
    else
      of(static_cast<const T*>(o.grad));
  };
  if (o.copy_type == DType::bf16)
    update(static_cast<bf16*>(o.copy));
  else
    update(static_cast<f16*>(o.copy));
}

// The same with a direction in f32 in place of the gradient.
template <class Rule>
SIMD_FN void update_range_f32(const UpdateOperands& o, int64_t begin, int64_t end,
                              const Rule& rule) {
  update_with(static_cast<const float*>(o.grad), o, begin, end, rule);
}

// Updates elements [begin, end): p -= rate * direction.
inline void step_along_range(float rate, const UpdateOperands& o, int64_t begin, int64_t end) {
  const Pack minus_rate = all(-rate);
  update_range_f32(o, begin, end, [=](int64_t, auto, Pack p, Pack direction) SIMD_INLINE {
    return fma(minus_rate, direction, p);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_UPDATE_INL_H
