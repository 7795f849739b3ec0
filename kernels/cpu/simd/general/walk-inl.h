// Computes the formula of a walk over tiles: step by step, so that intermediate results stay in the first-level cache. An
// element has the same bits in any tile. Included once per Highway target, hence the toggled include guard.
#if defined(DSTRAIN_SIMD_WALK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_WALK_INL_H
#undef DSTRAIN_SIMD_WALK_INL_H
#else
#define DSTRAIN_SIMD_WALK_INL_H
#endif

#include "kernels/cpu/simd/functions-inl.h"
#include "kernels/cpu/simd/general/walk.h"
#include "kernels/cpu/simd/math-inl.h"
#include "kernels/cpu/simd/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// What a step reads and writes: tiles of whole packs.
struct StepTiles {
  const float *a, *b, *c;
  float* to;
  int64_t packs;
};

template <class F>
SIMD_FN void unary(const StepTiles& t, const F& f) {
  for (int64_t i = 0; i < t.packs * kPack; i += kPack) store(f(load(t.a + i)), t.to + i);
}
template <class F>
SIMD_FN void binary(const StepTiles& t, const F& f) {
  for (int64_t i = 0; i < t.packs * kPack; i += kPack)
    store(f(load(t.a + i), load(t.b + i)), t.to + i);
}

void run_step(Fn fn, const StepTiles& t) {
  switch (fn) {
    case Fn::add:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return a + b; });
    case Fn::subtract:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return a - b; });
    case Fn::multiply:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return a * b; });
    case Fn::divide:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return a / b; });
    case Fn::maximum:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return any_maximum(a, b); });
    case Fn::minimum:
      return binary(t, [](Pack a, Pack b) SIMD_INLINE { return any_minimum(a, b); });
    case Fn::less:
      return binary(t,
                    [](Pack a, Pack b) SIMD_INLINE { return select_or_zero(less(a, b), all(1)); });
    case Fn::select:
      for (int64_t i = 0; i < t.packs * kPack; i += kPack) {
        const Pack condition = load(t.a + i), zero = all(0);
        // NaN is not 0, so it selects b.
        const Pack no_or_nan = select(is_nan(condition), load(t.b + i), load(t.c + i));
        const Pack yes_if_less = select(less(condition, zero), load(t.b + i), no_or_nan);
        store(select(greater(condition, zero), load(t.b + i), yes_if_less), t.to + i);
      }
      return;
    case Fn::negate:
      return unary(t, [](Pack a) SIMD_INLINE { return negated(a); });
    case Fn::absolute:
      return unary(t, [](Pack a) SIMD_INLINE { return absolute(a); });
    case Fn::exponential:
      return unary(t, [](Pack a) SIMD_INLINE { return exponential(a); });
    case Fn::logarithm:
      return unary(t, [](Pack a) SIMD_INLINE { return any_logarithm(a); });
    case Fn::square_root:
      return unary(t, [](Pack a) SIMD_INLINE { return square_root(a); });
    case Fn::tangent:
      return unary(t, [](Pack a) SIMD_INLINE { return any_tangent(a); });
    case Fn::sigmoid:
      return unary(t,
                   [](Pack a) SIMD_INLINE { return all(1) / (all(1) + exponential(all(0) - a)); });
    case Fn::sine:
      return unary(t, [](Pack a) SIMD_INLINE { return sine(a); });
    case Fn::cosine:
      return unary(t, [](Pack a) SIMD_INLINE { return cosine(a); });
    case Fn::input:
    case Fn::inside:
    case Fn::constant:
      return;
  }
}

// A run of indices along the last dimension: where its first element is, and which of its indices have one.
struct ViewRun {
  int64_t from = 0, stride = 0;
  int64_t begin = 0, end = 0;  // within the run
};

// Calls f(place in the tile, length, run) for each run of the n indices of the space from number `at` on.
template <class F>
SIMD_FN void for_runs(const Shape& space, const WalkOperand& operand, int64_t at, int64_t n,
                      const F& f) {
  const View& view = operand.view;
  const int last = space.rank - 1;
  int64_t index[Shape::kMaxRank];
  for (int d = last; d >= 0; --d) {
    index[d] = at % space[d];
    at /= space[d];
  }
  for (int64_t done = 0; done < n;) {
    const auto l = static_cast<size_t>(last);
    const int64_t length = std::min(n - done, space[last] - index[last]);
    ViewRun run{.from = view.offset, .stride = view.strides[l], .begin = 0, .end = length};
    for (int d = 0; d <= last; ++d) run.from += index[d] * view.strides[static_cast<size_t>(d)];
    if (operand.bounded) {
      run.begin = std::clamp<int64_t>(view.begin[l] - index[last], 0, length);
      if (view.end[l] != View::kAll)
        run.end = std::clamp<int64_t>(view.end[l] - index[last], run.begin, length);
      for (int d = 0; d < last; ++d)
        if (index[d] < view.begin[static_cast<size_t>(d)] ||
            index[d] >= view.end[static_cast<size_t>(d)])
          run.end = run.begin;
    }
    f(done, length, run);
    done += length;
    index[last] += length;
    for (int d = last; d > 0 && index[d] == space[d]; --d) {
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

template <class T>
SIMD_FN void load_run(const T* from, int64_t stride, int64_t n, float* to) {
  if (stride == 0) {
    const Pack value = all(to_float(*from));
    return for_packs(0, n, [=](int64_t i, auto lanes) SIMD_INLINE { store(value, to + i, lanes); });
  }
  if (stride == 1)
    return for_packs(0, n, [=](int64_t i, auto lanes) SIMD_INLINE {
      store(load(from + i, lanes), to + i, lanes);
    });
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i * stride]);
}

SIMD_FN void load_integers(const int32_t* from, int64_t stride, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i * stride]);
}

// Loads the operand's elements at n indices of the space, the first one being number `at`.
void load_operand(const Shape& space, const WalkOperand& operand, int64_t at, int64_t n,
                  float* to) {
  for_runs(space, operand, at, n, [&](int64_t place, int64_t length, const ViewRun& run) {
    float* here = to + place;
    if (run.begin > 0) std::fill_n(here, run.begin, 0.0f);
    if (run.end < length) std::fill_n(here + run.end, length - run.end, 0.0f);
    if (run.begin == run.end) return;
    const int64_t first = run.from + run.begin * run.stride, count = run.end - run.begin;
    if (operand.dtype == DType::i32)
      return load_integers(static_cast<const int32_t*>(operand.data) + first, run.stride, count,
                           here + run.begin);
    with_type(operand.dtype, [&](auto type) SIMD_INLINE {
      using T = decltype(type);
      load_run(static_cast<const T*>(operand.data) + first, run.stride, count, here + run.begin);
    });
  });
}

// The same of 1 where the operand has an element, else 0.
void load_inside(const Shape& space, const WalkOperand& operand, int64_t at, int64_t n, float* to) {
  for_runs(space, operand, at, n, [&](int64_t place, int64_t length, const ViewRun& run) {
    for (int64_t i = 0; i < length; ++i)
      to[place + i] = run.begin <= i && i < run.end ? 1.0f : 0.0f;
  });
}

// The results of a formula's steps over one tile.
class Tiles {
 public:
  explicit Tiles(const Walk& walk) : walk_(walk) {
    const std::span<const FormulaStep> steps = walk.formula.steps();
    for (size_t s = 0; s < steps.size(); ++s)
      std::fill_n(tiles_[s], kTile, steps[s].fn == Fn::constant ? steps[s].value : 0.0f);
  }

  // Returns the formula's values at n <= kTile indices, the first one being number `at` of the space. They stay until the
  // next call.
  const float* values(int64_t at, int64_t n) {
    const std::span<const FormulaStep> steps = walk_.formula.steps();
    for (size_t s = 0; s < steps.size(); ++s) {
      const FormulaStep& step = steps[s];
      if (step.fn == Fn::input)
        load_operand(walk_.space, walk_.in[step.a], at, n, tiles_[s]);
      else if (step.fn == Fn::inside)
        load_inside(walk_.space, walk_.in[step.a], at, n, tiles_[s]);
      else
        run_step(step.fn, {tiles_[step.a], tiles_[step.b], tiles_[step.c], tiles_[s],
                           (n + kPack - 1) / kPack});
    }
    return tiles_[steps.size() - 1];
  }

 private:
  const Walk& walk_;
  alignas(64) float tiles_[Formula::kMostSteps][kTile];
};

// Writes n values to elements of a result from `at` on, or adds them.
SIMD_FN void write_values(const float* values, int64_t n, bool accumulate, DType dtype, void* out,
                          int64_t at) {
  with_type(dtype, [=](auto type) SIMD_INLINE {
    using T = decltype(type);
    T* to = static_cast<T*>(out) + at;
    for_packs(0, n, [=](int64_t i, auto lanes) SIMD_INLINE {
      const Pack value = load(values + i, lanes);
      store(accumulate ? load(to + i, lanes) + value : value, to + i, lanes);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif
