// window and window_grad. Minimum memory traffic: what is read once, and what is written; window_grad reads each window's
// elements once.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/memory_bound/general/with_floats.h"
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/general/window.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_WINDOW_ONCE
#define DSTRAIN_SIMD_WINDOW_ONCE
namespace dstrain::simd {
namespace {

using Dimension = WindowAttrs::Dimension;

// f32 sums of a gradient that are in the second-level cache together.
constexpr int64_t kBand = 16384;

struct WindowRun {
  WindowAttrs attrs{};
  DType from{}, to{};
  bool accumulate = false;
  const void* in = nullptr;
  void* out = nullptr;

  // Windows that differ in the last dimension alone.
  int64_t window_rows() const {
    return attrs.planes * attrs.dimensions[0].out * attrs.dimensions[1].out;
  }
  // Elements of a position, and of positions that differ in the last dimension alone, and bands of such rows.
  int64_t position() const { return attrs.samples * attrs.channels; }
  int64_t row() const { return attrs.dimensions[2].size * position(); }
  int64_t band_rows() const { return std::max<int64_t>(1, kBand / row()); }
  int64_t row_bands() const { return (attrs.dimensions[1].size + band_rows() - 1) / band_rows(); }
  int64_t bands() const { return attrs.planes * attrs.dimensions[0].size * row_bands(); }
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

template <class T, class To>
SIMD_FN void write_run(const T* from, int64_t n, bool accumulate, To* to) {
  if constexpr (std::is_same_v<T, To>)
    if (!accumulate) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
      return;
    }
  for_packs(0, n, [=](int64_t i, auto lanes) SIMD_INLINE {
    const Pack x = load(from + i, lanes);
    store(accumulate ? load(to + i, lanes) + x : x, to + i, lanes);
  });
}

template <class T>
SIMD_FN void write_outside(T outside, int64_t n, bool accumulate, T* to) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = accumulate ? from_float<T>(to_float(to[i]) + to_float(outside)) : outside;
}

// Writes what window `o2` of a row has in a row of a sample's positions, which begins at x. Places that follow each other in x are
// one run.
template <class T, class To>
SIMD_FN void write_places(const WindowRun& run, const T* x, int64_t o2, To outside, To* to) {
  const int64_t channels = run.attrs.channels;
  const Dimension& d = run.attrs.dimensions[2];
  const int64_t first = o2 * d.stride - d.padding;
  for (int64_t k = 0; k < d.kernel;) {
    const int64_t here = first + k * d.dilation;
    const bool inside = 0 <= here && here < d.size;
    int64_t places = 1;
    if (!inside)
      places =
          here < 0 ? std::min(d.kernel - k, (d.dilation - 1 - here) / d.dilation) : d.kernel - k;
    else if (d.dilation == 1 && run.attrs.samples == 1)
      places = std::min(d.kernel - k, d.size - here);
    if (inside)
      write_run(x + here * run.position(), places * channels, run.accumulate, to);
    else
      write_outside(outside, places * channels, run.accumulate, to);
    k += places;
    to += places * channels;
  }
}

// Writes what the windows of rows [begin, end) have.
template <class T, class To>
SIMD_FN void window_rows(const WindowRun& run, int64_t begin, int64_t end) {
  const WindowAttrs& w = run.attrs;
  const auto& [d0, d1, d2] = w.dimensions;
  const To outside = from_float<To>(w.outside);
  To* to = static_cast<To*>(run.out) + begin * d2.out * w.kernel() * run.position();
  for (; begin < end; ++begin) {
    const int64_t o1 = begin % d1.out, o0 = begin / d1.out % d0.out,
                  plane = begin / d1.out / d0.out;
    const T* const x = static_cast<const T*>(run.in) + plane * w.positions() * run.position();
    for (int64_t i = 0; i < d2.out * w.samples; ++i)
      for (int64_t k0 = 0; k0 < d0.kernel; ++k0)
        for (int64_t k1 = 0; k1 < d1.kernel; ++k1, to += d2.kernel * w.channels) {
          const int64_t i0 = d0.element(o0, k0), i1 = d1.element(o1, k1);
          if (i0 < 0 || i1 < 0)
            write_outside(outside, d2.kernel * w.channels, run.accumulate, to);
          else
            write_places(run, x + (i0 * d1.size + i1) * run.row() + i % w.samples * w.channels,
                         i / w.samples, outside, to);
        }
  }
}

// Adds what window `o2` of a row has at one place of the second dimension to the sums of a row of a sample's positions.
template <class T>
SIMD_FN void add_places(const WindowAttrs& w, const T* y, int64_t o2, float* sums) {
  const Dimension& d = w.dimensions[2];
  const int64_t first = o2 * d.stride - d.padding;
  const auto add = [&](int64_t k, int64_t places) {
    const T* const from = y + k * w.channels;
    float* const to = sums + (first + k * d.dilation) * w.samples * w.channels;
    for_packs(0, places * w.channels, [=](int64_t i, auto lanes) SIMD_INLINE {
      store(load(to + i, lanes) + load(from + i, lanes), to + i, lanes);
    });
  };
  if (d.dilation == 1 && w.samples == 1) {
    const int64_t begin = std::max<int64_t>(0, -first), end = std::min(d.kernel, d.size - first);
    if (begin < end) add(begin, end - begin);
    return;
  }
  for (int64_t k = 0; k < d.kernel; ++k)
    if (d.element(o2, k) >= 0) add(k, 1);
}

// Computes bands [begin, end) of the gradient. A position's terms come in the order of their places, since the windows come from
// the last one on.
template <class T>
SIMD_FN void grad_bands(const WindowRun& run, int64_t begin, int64_t end) {
  const WindowAttrs& w = run.attrs;
  const auto& [d0, d1, d2] = w.dimensions;
  const int64_t of_window = w.kernel() * w.channels;
  std::vector<float> sums(static_cast<size_t>(run.band_rows() * run.row()));
  for (; begin < end; ++begin) {
    const int64_t first = begin % run.row_bands() * run.band_rows(),
                  last = std::min(first + run.band_rows(), d1.size),
                  i0 = begin / run.row_bands() % d0.size, plane = begin / run.row_bands() / d0.size;
    const T* const y = static_cast<const T*>(run.in) + plane * w.windows() * w.samples * of_window;
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t k0 = 0; k0 < d0.kernel; ++k0) {
      const int64_t o0 = d0.window(i0, k0);
      if (o0 < 0) continue;
      for (int64_t o1 = d1.out; o1-- > 0;) {
        if (o1 * d1.stride - d1.padding >= last) continue;
        if (o1 * d1.stride - d1.padding + (d1.kernel - 1) * d1.dilation < first) break;
        for (int64_t i = d2.out * w.samples; i-- > 0;)
          for (int64_t k1 = 0; k1 < d1.kernel; ++k1) {
            const int64_t i1 = o1 * d1.stride + k1 * d1.dilation - d1.padding;
            if (i1 < first || i1 >= last) continue;
            add_places(w,
                       y + ((o0 * d1.out + o1) * d2.out * w.samples + i) * of_window +
                           (k0 * d1.kernel + k1) * d2.kernel * w.channels,
                       i / w.samples,
                       sums.data() + (i1 - first) * run.row() + i % w.samples * w.channels);
          }
      }
    }
    const int64_t at = ((plane * d0.size + i0) * d1.size + first) * run.row();
    with_type(run.to, [&](auto type) SIMD_INLINE {
      auto* const to = static_cast<decltype(type)*>(run.out) + at;
      write_run(sums.data(), (last - first) * run.row(), run.accumulate, to);
    });
  }
}

void window_range(const WindowRun& run, int64_t begin, int64_t end) {
  with_type(run.from, [&](auto of_elements) SIMD_INLINE {
    with_type(run.to, [&](auto of_result) SIMD_INLINE {
      window_rows<decltype(of_elements), decltype(of_result)>(run, begin, end);
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
    const int64_t bytes = w.dimensions[2].out * w.kernel() * here.position() * size_of(here.to);
    parallel_ranges(threads, here.window_rows(), row_grain(bytes), [&](int64_t begin, int64_t end) {
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
    const WindowAttrs& w = here.attrs;
    const int64_t elements = here.band_rows() * here.row() * w.kernel();
    parallel_ranges(threads, here.bands(), row_grain(elements * size_of(here.from)),
                    [&](int64_t begin, int64_t end) {
                      DSTRAIN_BEST(window_grad_range)(here, begin, end);
                    });
  });
}

}  // namespace dstrain::simd
#endif
