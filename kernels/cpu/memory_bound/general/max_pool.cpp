// max_pool and max_pool_grad. Minimum memory traffic: each operand once. The gradient first finds the place of each window's largest
// element, and then adds for each position what the windows have whose place it is.
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/ir/views/general_attrs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/general/max_pool.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_MAX_POOL_ONCE
#define DSTRAIN_SIMD_MAX_POOL_ONCE
namespace dstrain::simd {
namespace {

using Dimension = WindowAttrs::Dimension;

struct PoolRun {
  WindowAttrs attrs{};
  DType dtype{};
  const void *x = nullptr, *d_y = nullptr;
  void *y = nullptr, *d_x = nullptr;
  float* places = nullptr;  // of each window's largest element

  // Elements of a position or a window.
  int64_t inner() const { return attrs.samples * attrs.channels; }
};

// Calls f(place, other) for each place at which index `at` of one side has an index of the other side, in the order of the places.
// kOwn and kOther: the lengths of the sides, windows and positions; find(dimension, index, k): the other index, -1 for none.
template <int64_t Dimension::*kOwn, int64_t Dimension::*kOther, class Find, class F>
void for_others(const WindowAttrs& w, int64_t at, const Find& find, const F& f) {
  const auto& [d0, d1, d2] = w.dimensions;
  const int64_t at0 = at / (d2.*kOwn) / (d1.*kOwn), at1 = at / (d2.*kOwn) % (d1.*kOwn),
                at2 = at % (d2.*kOwn);
  for (int64_t k0 = 0; k0 < d0.kernel; ++k0) {
    const int64_t other0 = find(d0, at0, k0);
    if (other0 < 0) continue;
    for (int64_t k1 = 0; k1 < d1.kernel; ++k1) {
      const int64_t other1 = find(d1, at1, k1);
      if (other1 < 0) continue;
      for (int64_t k2 = 0; k2 < d2.kernel; ++k2) {
        const int64_t other2 = find(d2, at2, k2);
        if (other2 >= 0)
          f((k0 * d1.kernel + k1) * d2.kernel + k2,
            (other0 * (d1.*kOther) + other1) * (d2.*kOther) + other2);
      }
    }
  }
}

// Calls f(place, position) for each place of window `o` that is inside its plane.
template <class F>
void for_places(const WindowAttrs& w, int64_t o, const F& f) {
  for_others<&Dimension::out, &Dimension::size>(
      w, o, [](const Dimension& d, int64_t window, int64_t k) { return d.element(window, k); }, f);
}

// Calls f(place, window) for each window that has position `i` at a place.
template <class F>
void for_windows(const WindowAttrs& w, int64_t i, const F& f) {
  for_others<&Dimension::size, &Dimension::out>(
      w, i, [](const Dimension& d, int64_t position, int64_t k) { return d.window(position, k); },
      f);
}

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Returns where a takes the place of b as the largest: it is larger, or no number.
SIMD_FN Mask beats(Pack a, Pack b) {
  Mask m;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    m.v[i] = hn::Or(hn::Gt(a.v[i], b.v[i]), hn::Not(hn::Eq(a.v[i], a.v[i])));
  return m;
}

// Writes the largest elements of windows [begin, end), or their places.
void pool_windows(const PoolRun& run, int64_t begin, int64_t end) {
  with_type(run.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const WindowAttrs& w = run.attrs;
    const int64_t inner = run.inner(), windows = w.windows();
    std::vector<std::pair<int64_t, int64_t>> places;
    for (int64_t o = begin; o < end; ++o) {
      const T* const x = static_cast<const T*>(run.x) + o / windows * w.positions() * inner;
      places.clear();
      for_places(w, o % windows, [&](int64_t place, int64_t position) {
        places.emplace_back(place, position * inner);
      });
      for_packs(0, inner, [&](int64_t c, auto n) SIMD_INLINE {
        Pack largest = all(-HUGE_VALF), at = all(-1);
        for (size_t k = 0; k < places.size(); ++k) {
          const auto& [place, offset] = places[k];
          const Pack here = load(x + offset + c, n);
          if (k == 0) {
            largest = here;
            at = all(static_cast<float>(place));
            continue;
          }
          const Mask takes = beats(here, largest);
          at = select(takes, all(static_cast<float>(place)), at);
          largest = select(takes, here, largest);
        }
        if (run.places)
          store(at, run.places + o * inner + c, n);
        else
          store(largest, static_cast<T*>(run.y) + o * inner + c, n);
      });
    }
  });
}

// Writes the gradients of positions [begin, end).
void grad_positions(const PoolRun& run, int64_t begin, int64_t end) {
  with_type(run.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const WindowAttrs& w = run.attrs;
    const int64_t inner = run.inner(), positions = w.positions();
    std::vector<std::pair<int64_t, int64_t>> windows;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / positions * w.windows();
      windows.clear();
      for_windows(w, i % positions, [&](int64_t place, int64_t window) {
        windows.emplace_back(place, (first + window) * inner);
      });
      for_packs(0, inner, [&](int64_t c, auto n) SIMD_INLINE {
        Pack sum = all(0);
        for (const auto& [place, offset] : windows) {
          const Pack apart =
              absolute(load(run.places + offset + c, n) - all(static_cast<float>(place)));
          sum = sum + select_or_zero(less(apart, all(0.5f)),
                                     load(static_cast<const T*>(run.d_y) + offset + c, n));
        }
        store(sum, static_cast<T*>(run.d_x) + i * inner + c, n);
      });
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

int64_t grain_of(const PoolRun& run) {
  return row_grain(run.inner() * run.attrs.kernel() * size_of(run.dtype));
}

void pool_all(int threads, const PoolRun& run) {
  const int64_t windows = run.attrs.planes * run.attrs.windows();
  parallel_ranges(threads, windows, grain_of(run), [&](int64_t begin, int64_t end) {
    DSTRAIN_BEST(pool_windows)(run, begin, end);
  });
}

void grad_all(int threads, const PoolRun& run) {
  const int64_t positions = run.attrs.planes * run.attrs.positions();
  parallel_ranges(threads, positions, grain_of(run), [&](int64_t begin, int64_t end) {
    DSTRAIN_BEST(grad_positions)(run, begin, end);
  });
}

}  // namespace

int64_t max_pool_grad_workspace(const KernelSpec& spec) {
  return elements(spec.in[0]) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_max_pool(const KernelSpec& spec) {
  const PoolRun run{.attrs = attrs_as<WindowAttrs>(spec.attrs), .dtype = spec.in[0].dtype};
  return kernel_of([run, threads = spec.threads](const KernelCall& call) {
    PoolRun here = run;
    here.x = data(call.in, 0);
    here.y = data(call.out, 0);
    pool_all(threads, here);
  });
}

std::unique_ptr<Kernel> make_max_pool_grad(const KernelSpec& spec) {
  const PoolRun run{.attrs = attrs_as<WindowAttrs>(spec.attrs), .dtype = spec.in[0].dtype};
  return kernel_of([run, threads = spec.threads, n = elements(spec.in[0])](const KernelCall& call) {
    PoolRun here = run;
    here.d_y = data(call.in, 0);
    here.x = data(call.in, 1);
    here.d_x = data(call.out, 0);
    here.places = workspace<float>(call, n);
    pool_all(threads, here);
    grad_all(threads, here);
  });
}

}  // namespace dstrain::simd
#endif
