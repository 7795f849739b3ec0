// map: a formula of each element, evaluated step by step over tiles of elements, whose intermediate results stay in the
// first-level cache. Minimum memory traffic: the operands once, and the result; a step costs a load and a store of a tile
// beside its arithmetic. An element has the same bits in any tile.
#include <array>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"
#include "runtime/ir/formula/broadcast.h"
#include "runtime/ir/formula/formula.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/map.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/functions-inl.h"
#include "kernels/cpu/simd/math-inl.h"
#include "kernels/cpu/simd/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_MAP_ONCE
#define DSTRAIN_SIMD_MAP_ONCE
namespace dstrain::simd {
namespace {

constexpr int64_t kTile = 256;  // elements; a multiple of a pack

struct MapOperand {
  DType dtype{};
  Broadcast way{};
  const void* data = nullptr;
};

// A formula with its operands, and the result, whose rows have `columns` columns.
struct MapRun {
  Formula formula;
  std::array<MapOperand, Formula::kMostInputs> in{};
  DType dtype{};
  void* out = nullptr;
  int64_t columns = 0;
  bool by_row = false;  // an operand is broadcast: a tile does not pass the end of a row
};

}  // namespace
}  // namespace dstrain::simd
#endif

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
    case Fn::constant:
      return;
  }
}

// Loads n elements of an operand, the first one for element `at` of the result, which is in this row and column.
void load_tile(const MapOperand& operand, int64_t at, int64_t row, int64_t column, int64_t n,
               float* to) {
  with_type(operand.dtype, [=](auto type) SIMD_INLINE {
    using T = decltype(type);
    const T* from = static_cast<const T*>(operand.data);
    if (operand.way == Broadcast::rows || operand.way == Broadcast::one) {
      const Pack value = all(to_float(from[operand.way == Broadcast::rows ? row : 0]));
      return for_packs(0, n,
                       [=](int64_t i, auto lanes) SIMD_INLINE { store(value, to + i, lanes); });
    }
    from += operand.way == Broadcast::columns ? column : at;
    for_packs(0, n, [=](int64_t i, auto lanes) SIMD_INLINE {
      store(load(from + i, lanes), to + i, lanes);
    });
  });
}

// Computes elements [begin, end) of the result.
void map_range(const MapRun& m, int64_t begin, int64_t end) {
  alignas(64) float tiles[Formula::kMostSteps][kTile];
  const std::span<const FormulaStep> steps = m.formula.steps();
  for (size_t s = 0; s < steps.size(); ++s)
    std::fill_n(tiles[s], kTile, steps[s].fn == Fn::constant ? steps[s].value : 0.0f);
  while (begin < end) {
    const int64_t row = begin / m.columns, column = begin % m.columns;
    int64_t n = std::min(kTile, end - begin);
    if (m.by_row) n = std::min(n, m.columns - column);
    for (size_t s = 0; s < steps.size(); ++s) {
      const FormulaStep& step = steps[s];
      if (step.fn == Fn::input)
        load_tile(m.in[step.a], begin, row, column, n, tiles[s]);
      else
        run_step(step.fn,
                 {tiles[step.a], tiles[step.b], tiles[step.c], tiles[s], (n + kPack - 1) / kPack});
    }
    const float* result = tiles[steps.size() - 1];
    with_type(m.dtype, [=, &m](auto type) SIMD_INLINE {
      using T = decltype(type);
      T* to = static_cast<T*>(m.out) + begin;
      for_packs(0, n, [=](int64_t i, auto lanes) SIMD_INLINE {
        store(load(result + i, lanes), to + i, lanes);
      });
    });
    begin += n;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_map(const KernelSpec& spec) {
  MapRun run{.formula = attrs_as<MapAttrs>(spec.attrs).formula,
             .dtype = spec.out[0].dtype,
             .columns = columns(spec.out[0])};
  const size_t count = spec.in.size();
  for (size_t i = 0; i < count; ++i) {
    run.in[i] = {spec.in[i].dtype, broadcast_of(spec.out[0].shape, spec.in[i].shape)};
    run.by_row = run.by_row || run.in[i].way != Broadcast::none;
  }
  return kernel_of(
      [run, count, threads = spec.threads, n = elements(spec.out[0])](const KernelCall& call) {
        MapRun here = run;
        here.out = data(call.out, 0);
        for (size_t i = 0; i < count; ++i) here.in[i].data = data(call.in, i);
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(map_range)(here, begin, end);
        });
      });
}

}  // namespace dstrain::simd
#endif
