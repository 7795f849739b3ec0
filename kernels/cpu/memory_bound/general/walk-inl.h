// Computes the formula of a walk over tiles: step by step, so that intermediate results stay in the first-level cache. An
// element has the same bits in any tile. Included once per Highway target, hence the toggled include guard.
#if defined(DSTRAIN_SIMD_WALK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_WALK_INL_H
#undef DSTRAIN_SIMD_WALK_INL_H
#else
#define DSTRAIN_SIMD_WALK_INL_H
#endif

#include "kernels/cpu/memory_bound/general/formula_steps-inl.h"
#include "kernels/cpu/memory_bound/general/operand_tiles-inl.h"
#include "kernels/cpu/memory_bound/general/walk.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kTileFloats = kTile + kPack;  // whole packs that begin anywhere in a tile

// The results of a formula's steps over one tile.
class Tiles {
 public:
  explicit Tiles(const Walk& walk)
      : walk_(walk), steps_(walk.formula.steps()), last_(static_cast<size_t>(walk.last())) {
    find_elements();
    assign_tiles();
    for (size_t s = 0; s < steps_.size(); ++s) {
      std::fill_n(tile(s), kTileFloats, steps_[s].fn == Fn::constant ? steps_[s].value : 0.0f);
      results_[s] = tile(s);
    }
  }

  // Returns the formula's values at 0 < n <= kTile indices, the first one being number `at` of the space: at `to`, if the
  // values are computed and whole packs, else elsewhere. They stay until the next call. Calls for consecutive indices take
  // no divisions.
  const float* values(int64_t at, int64_t n, float* to = nullptr) {
    seek(at);
    for (size_t s = 0; s < steps_.size(); ++s) {
      const FormulaStep& step = steps_[s];
      if (step.fn == Fn::input)
        read(s, n);
      else if (step.fn == Fn::inside)
        load_inside(walk_.space, walk_.in[step.a], index_, n, tile(s));
      else if (step.fn != Fn::constant)
        compute(s, (n + kPack - 1) / kPack,
                to && s + 1 == steps_.size() && n % kPack == 0 ? to : tile(s));
    }
    move_on(n);
    return results_[steps_.size() - 1];
  }

  // Returns how many of `most` indices are in the row of number `at`, or `most` where rows are short: tiles that end with a
  // row have one run of each operand.
  int64_t of_one_row(int64_t at, int64_t most) {
    seek(at);
    const int64_t size = walk_.space.dims[last_];
    return size < kTile ? most : std::min(most, size - index_[last_]);
  }

  // Returns the formula's values in a rectangle of at most kTile floats.
  const float* values(const Rectangle& part) {
    for (size_t s = 0; s < steps_.size(); ++s) {
      const FormulaStep& step = steps_[s];
      if (step.fn == Fn::input)
        load_rectangle(walk_.space, walk_.in[step.a], part, tile(s));
      else if (step.fn == Fn::inside)
        load_inside(walk_.space, walk_.in[step.a], part, tile(s));
      else if (step.fn != Fn::constant)
        compute(s, part.rows * part.pitch() / kPack, tile(s));
    }
    return results_[steps_.size() - 1];
  }

 private:
  float* tile(size_t s) { return tiles_[tile_of_[s]]; }

  // Gives each step a tile: one that no step reads any more, so that few are in use.
  void assign_tiles() {
    std::array<size_t, Formula::kMostSteps> last_read{};
    for (size_t s = 0; s < steps_.size(); ++s)
      for_operands(steps_[s], [&](uint8_t operand) { last_read[operand] = s; });
    std::array<uint8_t, Formula::kMostSteps> free{};
    size_t free_tiles = 0;
    uint8_t tiles = 0;
    for (size_t s = 0; s < steps_.size(); ++s) {
      for_operands(steps_[s], [&](uint8_t operand) {
        if (last_read[operand] != s || steps_[operand].fn == Fn::constant) return;
        last_read[operand] = steps_.size();  // once
        free[free_tiles++] = tile_of_[operand];
      });
      const bool own = steps_[s].fn == Fn::constant || free_tiles == 0;
      tile_of_[s] = own ? tiles++ : free[--free_tiles];
    }
  }

  // Calls f(step) for each earlier step that a step reads.
  template <class F>
  static void for_operands(const FormulaStep& step, const F& f) {
    const int count = operands_of(step.fn);
    if (count > 0) f(step.a);
    if (count > 1) f(step.b);
    if (count > 2) f(step.c);
  }

  void compute(size_t s, int64_t packs, float* to) {
    const FormulaStep& step = steps_[s];
    run_step(step.fn, {results_[step.a], results_[step.b], results_[step.c], to, packs});
    results_[s] = to;
  }

  // Reads an operand where it is, if it has these elements side by side in f32, or else copies it to the step's tile.
  void read(size_t s, int64_t n) {
    const WalkOperand& operand = walk_.in[steps_[s].a];
    float* const copy = tile(s);
    results_[s] = copy;
    ViewRun run{.from = 0, .begin = 0, .end = n};
    const bool one_run = index_[last_] + n <= walk_.space.dims[last_];
    if (one_run && operand.bounded) set_bounds(operand.view, walk_.last(), index_, n, run);
    if (!one_run || run.end - run.begin < n)
      return load_operand(walk_.space, operand, index_, n, copy);
    const int64_t from = elements_[steps_[s].a], stride = operand.view.strides[last_];
    if (stride == 1 && operand.dtype == DType::f32 && (n % kPack == 0 || steps_.size() == 1))
      results_[s] = static_cast<const float*>(operand.data) + from;
    else
      load_run(operand, from, stride, n, copy);
  }

  void seek(int64_t at) {
    if (at == at_) return;
    at_ = at;
    for (int d = walk_.last(); d >= 0; --d) {
      index_[static_cast<size_t>(d)] = at % walk_.space[d];
      at /= walk_.space[d];
    }
    find_elements();
  }

  void move_on(int64_t n) {
    at_ += n;
    index_[last_] += n;
    if (index_[last_] < walk_.space.dims[last_]) {
      for (size_t i = 0; i < walk_.operands; ++i)
        elements_[i] += n * walk_.in[i].view.strides[last_];
      return;
    }
    for (size_t d = last_; d > 0 && index_[d] >= walk_.space.dims[d]; --d) {
      index_[d - 1] += index_[d] / walk_.space.dims[d];
      index_[d] %= walk_.space.dims[d];
    }
    find_elements();
  }

  void find_elements() {
    for (size_t i = 0; i < walk_.operands; ++i)
      elements_[i] = element_of(walk_.in[i].view, walk_.space, index_);
  }

  const Walk& walk_;
  std::span<const FormulaStep> steps_;
  size_t last_;
  int64_t at_ = 0;
  View::Numbers index_{};                                 // of number at_
  std::array<int64_t, Formula::kMostInputs> elements_{};  // of operands, there
  std::array<uint8_t, Formula::kMostSteps> tile_of_{};
  const float* results_[Formula::kMostSteps];
  alignas(64) float tiles_[Formula::kMostSteps][kTileFloats];
};

// Writes n values to elements of a result from `at` on, or adds them. Integers lose what is behind the point.
SIMD_FN void write_values(const float* values, int64_t n, bool accumulate, DType dtype, void* out,
                          int64_t at) {
  if (dtype == DType::i32) {
    int32_t* const to = static_cast<int32_t*>(out) + at;
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<int32_t>(values[i]);
    return;
  }
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
