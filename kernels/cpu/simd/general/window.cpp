// window and window_grad. Minimum memory traffic: what is read once, and what is written; window_grad reads each window's
// elements once.
#include <array>
#include <cstring>

#include "kernels/cpu/simd/general/with_floats.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/general/window.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_WINDOW_ONCE
#define DSTRAIN_SIMD_WINDOW_ONCE
namespace dstrain::simd {
namespace {

using Dimension = WindowAttrs::Dimension;

constexpr int64_t kBand =
    4096;  // f32 sums of a gradient that are in the first-level cache together

// A place in a window, in each dimension.
struct Place {
  int64_t k0, k1, k2;

  Place(const WindowAttrs& w, int64_t place)
      : k0(place / w.dimensions[2].kernel / w.dimensions[1].kernel),
        k1(place / w.dimensions[2].kernel % w.dimensions[1].kernel),
        k2(place % w.dimensions[2].kernel) {}
};

// Windows [begin, end) of a dimension have an element at a place; those of them that have elements of [first, last) too.
struct Windows {
  int64_t begin, end;

  Windows(const Dimension& d, int64_t k, int64_t first, int64_t last) {
    const int64_t shift = d.padding - k * d.dilation;  // element = window * stride - shift
    const auto at_least = [&](int64_t element) {
      const int64_t from = element + shift;
      return from <= 0 ? 0 : (from + d.stride - 1) / d.stride;
    };
    end = std::min(d.out, at_least(last));
    begin = std::min(end, at_least(first));
  }
  Windows(const Dimension& d, int64_t k) : Windows(d, k, 0, d.size) {}
};

struct WindowRun {
  WindowAttrs attrs{};
  DType from{}, to{};
  bool accumulate = false;
  const void* in = nullptr;
  void* out = nullptr;

  // The bands of the gradient: rows of the second dimension of a band, columns of the third, and how many bands a plane has.
  int64_t band_columns() const { return std::min(attrs.dimensions[2].size, kBand); }
  int64_t band_rows() const { return std::max<int64_t>(1, kBand / band_columns()); }
  static int64_t pieces(int64_t size, int64_t of) { return (size + of - 1) / of; }
  int64_t row_bands() const { return pieces(attrs.dimensions[1].size, band_rows()); }
  int64_t column_bands() const { return pieces(attrs.dimensions[2].size, band_columns()); }
  int64_t bands() const {
    return attrs.planes * attrs.dimensions[0].size * row_bands() * column_bands();
  }
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Writes `n` values that are `stride` apart in `from`.
template <class T, class To>
SIMD_FN void write_run(const T* from, int64_t stride, int64_t n, bool accumulate, To* to) {
  if (accumulate) {
    for (int64_t i = 0; i < n; ++i)
      to[i] = from_float<To>(to_float(to[i]) + to_float(from[i * stride]));
  } else if constexpr (!std::is_same_v<T, To>) {
    for (int64_t i = 0; i < n; ++i) to[i] = from_float<To>(to_float(from[i * stride]));
  } else if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

template <class T>
SIMD_FN void write_outside(T outside, int64_t n, bool accumulate, T* to) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = accumulate ? from_float<T>(to_float(to[i]) + to_float(outside)) : outside;
}

// Writes what windows have at places [begin, end) of all planes.
template <class T, class To>
SIMD_FN void window_places(const WindowRun& run, int64_t begin, int64_t end) {
  const WindowAttrs& w = run.attrs;
  const auto& [d0, d1, d2] = w.dimensions;
  const To outside = from_float<To>(w.outside);
  for (; begin < end; ++begin) {
    const Place place(w, begin % w.kernel());
    const T* const x = static_cast<const T*>(run.in) + begin / w.kernel() * w.elements();
    To* to = static_cast<To*>(run.out) + begin * w.windows();
    const Windows columns(d2, place.k2);
    for (int64_t o0 = 0; o0 < d0.out; ++o0) {
      const int64_t i0 = d0.element(o0, place.k0);
      for (int64_t o1 = 0; o1 < d1.out; ++o1, to += d2.out) {
        const int64_t i1 = d1.element(o1, place.k1);
        if (i0 < 0 || i1 < 0 || columns.begin == columns.end) {
          write_outside(outside, d2.out, run.accumulate, to);
          continue;
        }
        const T* const from = x + (i0 * d1.size + i1) * d2.size + columns.begin * d2.stride +
                              place.k2 * d2.dilation - d2.padding;
        write_outside(outside, columns.begin, run.accumulate, to);
        write_run(from, d2.stride, columns.end - columns.begin, run.accumulate, to + columns.begin);
        write_outside(outside, d2.out - columns.end, run.accumulate, to + columns.end);
      }
    }
  }
}

// Adds n values to sums that are `stride` apart.
template <class T>
SIMD_FN void add_run(const T* from, int64_t n, int64_t stride, float* to) {
  if (stride == 1)
    return for_packs(0, n, [=](int64_t i, auto lanes) SIMD_INLINE {
      store(load(to + i, lanes) + load(from + i, lanes), to + i, lanes);
    });
  for (int64_t i = 0; i < n; ++i) to[i * stride] += to_float(from[i]);
}

// Adds what the windows have at one place to the sums of rows [first, last) of element i0 and columns [left, right).
template <class T>
SIMD_FN void add_place(const WindowAttrs& w, const T* y, const Place& place, int64_t i0,
                       int64_t first, int64_t last, int64_t left, int64_t right, float* sums) {
  const auto& [d0, d1, d2] = w.dimensions;
  const int64_t o0 = d0.window(i0, place.k0);
  const Windows rows(d1, place.k1, first, last), columns(d2, place.k2, left, right);
  if (o0 < 0 || columns.begin == columns.end) return;
  const int64_t row = place.k1 * d1.dilation - d1.padding - first,
                column = columns.begin * d2.stride + place.k2 * d2.dilation - d2.padding - left;
  for (int64_t o1 = rows.begin; o1 < rows.end; ++o1)
    add_run(y + (o0 * d1.out + o1) * d2.out + columns.begin, columns.end - columns.begin, d2.stride,
            sums + (o1 * d1.stride + row) * (right - left) + column);
}

// Computes bands [begin, end) of the gradient.
template <class T>
SIMD_FN void grad_bands(const WindowRun& run, int64_t begin, int64_t end) {
  const WindowAttrs& w = run.attrs;
  const Dimension &d1 = w.dimensions[1], &d2 = w.dimensions[2];
  alignas(64) float sums[kBand];
  for (; begin < end; ++begin) {
    const int64_t left = begin % run.column_bands() * run.band_columns(),
                  first = begin / run.column_bands() % run.row_bands() * run.band_rows(),
                  row = begin / run.column_bands() / run.row_bands(),
                  i0 = row % w.dimensions[0].size, plane = row / w.dimensions[0].size;
    const int64_t right = std::min(left + run.band_columns(), d2.size),
                  last = std::min(first + run.band_rows(), d1.size), columns = right - left;
    std::fill_n(sums, columns * (last - first), 0.0f);
    const T* y = static_cast<const T*>(run.in) + plane * w.kernel() * w.windows();
    for (int64_t k = 0; k < w.kernel(); ++k, y += w.windows())
      add_place(w, y, Place(w, k), i0, first, last, left, right, sums);
    with_type(run.to, [&](auto type) SIMD_INLINE {
      for (int64_t i1 = first; i1 < last; ++i1) {
        auto* const to =
            static_cast<decltype(type)*>(run.out) + (row * d1.size + i1) * d2.size + left;
        const float* const from = sums + (i1 - first) * columns;
        for_packs(0, columns, [=](int64_t i, auto lanes) SIMD_INLINE {
          const Pack sum = load(from + i, lanes);
          store(run.accumulate ? load(to + i, lanes) + sum : sum, to + i, lanes);
        });
      }
    });
  }
}

void window_range(const WindowRun& run, int64_t begin, int64_t end) {
  with_type(run.from, [&](auto of_elements) SIMD_INLINE {
    with_type(run.to, [&](auto of_result) SIMD_INLINE {
      window_places<decltype(of_elements), decltype(of_result)>(run, begin, end);
    });
  });
}

void window_grad_range(const WindowRun& run, int64_t begin, int64_t end) {
  with_type(run.from, [&](auto type) SIMD_INLINE { grad_bands<decltype(type)>(run, begin, end); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

WindowRun run_of(const WindowRun& run, const KernelCall& call) {
  WindowRun here = run;
  here.accumulate = call.accumulate;
  here.in = data(call.in, 0);
  here.out = data(call.out, 0);
  return here;
}

}  // namespace

std::unique_ptr<Kernel> make_window(const KernelSpec& spec) {
  const WindowRun run{.attrs = attrs_as<WindowAttrs>(spec.attrs),
                      .from = spec.in[0].dtype,
                      .to = spec.out[0].dtype};
  return kernel_of([run, threads = spec.threads](const KernelCall& call) {
    const WindowRun here = run_of(run, call);
    const WindowAttrs& w = here.attrs;
    parallel_ranges(threads, w.planes * w.kernel(), row_grain(w.windows() * size_of(here.to)),
                    [&](int64_t begin, int64_t end) {
                      DSTRAIN_BEST(window_range)(here, begin, end);
                    });
  });
}

std::unique_ptr<Kernel> make_window_grad(const KernelSpec& spec) {
  const WindowRun run{.attrs = attrs_as<WindowAttrs>(spec.attrs),
                      .from = spec.in[0].dtype,
                      .to = spec.out[0].dtype};
  return kernel_of([run, threads = spec.threads](const KernelCall& call) {
    const WindowRun here = run_of(run, call);
    const int64_t bytes = here.band_rows() * here.band_columns() * here.attrs.kernel();
    parallel_ranges(threads, here.bands(), row_grain(bytes * size_of(here.from)),
                    [&](int64_t begin, int64_t end) {
                      DSTRAIN_BEST(window_grad_range)(here, begin, end);
                    });
  });
}

}  // namespace dstrain::simd
#endif
