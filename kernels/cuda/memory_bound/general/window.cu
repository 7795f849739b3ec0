// window, max_pool and their gradients: a thread has an element of the result. Minimum memory traffic: what is read once, and what is
// written.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// Windows as kernels read them.
struct DeviceWindows {
  WindowAttrs::Dimension d[WindowAttrs::kDimensions];
  int64_t kernel, windows, positions, samples, channels;
  float outside;
};

DeviceWindows windows_of(const WindowAttrs& attrs) {
  DeviceWindows w{};
  std::copy(attrs.dimensions.begin(), attrs.dimensions.end(), w.d);
  w.kernel = attrs.kernel();
  w.windows = attrs.windows();
  w.positions = attrs.positions();
  w.samples = attrs.samples;
  w.channels = attrs.channels;
  w.outside = attrs.outside;
  return w;
}

// Returns the position that window `window` has at a place, and the window that has a position there; -1: none.
__device__ int64_t position_at(const DeviceWindows& w, int64_t window, int64_t place) {
  const int64_t o[3] = {window / w.d[2].out / w.d[1].out, window / w.d[2].out % w.d[1].out,
                        window % w.d[2].out};
  const int64_t k[3] = {place / w.d[2].kernel / w.d[1].kernel,
                        place / w.d[2].kernel % w.d[1].kernel, place % w.d[2].kernel};
  int64_t position = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t here = w.d[i].element(o[i], k[i]);
    if (here < 0) return -1;
    position = position * w.d[i].size + here;
  }
  return position;
}

__device__ int64_t window_at(const DeviceWindows& w, int64_t position, int64_t place) {
  const int64_t i[3] = {position / w.d[2].size / w.d[1].size, position / w.d[2].size % w.d[1].size,
                        position % w.d[2].size};
  const int64_t k[3] = {place / w.d[2].kernel / w.d[1].kernel,
                        place / w.d[2].kernel % w.d[1].kernel, place % w.d[2].kernel};
  int64_t window = 0;
  for (int d = 0; d < 3; ++d) {
    const int64_t o = w.d[d].window(i[d], k[d]);
    if (o < 0) return -1;
    window = window * w.d[d].out + o;
  }
  return window;
}

template <class T, class To>
struct Windows {
  DeviceWindows w;
  const T* x;
  To* y;
  bool accumulate;

  __device__ float value(int64_t at) const {
    const int64_t channel = at % w.channels, place = at / w.channels % w.kernel,
                  sample = at / w.channels / w.kernel % w.samples,
                  window = at / w.channels / w.kernel / w.samples % w.windows,
                  plane = at / w.channels / w.kernel / w.samples / w.windows;
    const int64_t position = position_at(w, window, place);
    if (position < 0) return w.outside;
    return widen(x[((plane * w.positions + position) * w.samples + sample) * w.channels + channel]);
  }

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    y[at] = narrow<To>(accumulate ? widen(y[at]) + value(at) : value(at));
  }
};

template <class T, class To>
struct WindowSums {
  DeviceWindows w;
  const T* y;
  To* x;
  bool accumulate;

  __device__ float value(int64_t at) const {
    const int64_t channel = at % w.channels, sample = at / w.channels % w.samples,
                  position = at / w.channels / w.samples % w.positions,
                  plane = at / w.channels / w.samples / w.positions;
    float sum = 0;
    for (int64_t place = 0; place < w.kernel; ++place) {
      const int64_t window = window_at(w, position, place);
      if (window >= 0)
        sum += widen(y[(((plane * w.windows + window) * w.samples + sample) * w.kernel + place) *
                           w.channels +
                       channel]);
    }
    return sum;
  }

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    x[at] = narrow<To>(accumulate ? widen(x[at]) + value(at) : value(at));
  }
};

// The largest element of a window, of each sample and channel by itself; NaN is the largest.
template <class T>
struct Largest {
  DeviceWindows w;
  const T* x;
  T* y;
  float* places;  // of the first largest element, in place of y

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t inner = w.samples * w.channels, here = at % inner;
    const int64_t window = at / inner % w.windows, plane = at / inner / w.windows;
    float largest = -HUGE_VALF, first = -1;
    for (int64_t place = 0; place < w.kernel; ++place) {
      const int64_t position = position_at(w, window, place);
      if (position < 0) continue;
      const float value = widen(x[(plane * w.positions + position) * inner + here]);
      if (first >= 0 && !(value > largest) && value == value) continue;
      largest = value;
      first = static_cast<float>(place);
    }
    if (places)
      places[at] = first;
    else
      y[at] = narrow<T>(largest);
  }
};

template <class T>
struct LargestGrad {
  DeviceWindows w;
  const T* d_y;
  const float* places;
  T* d_x;

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t inner = w.samples * w.channels, here = at % inner;
    const int64_t position = at / inner % w.positions, plane = at / inner / w.positions;
    float sum = 0;
    for (int64_t place = 0; place < w.kernel; ++place) {
      const int64_t window = window_at(w, position, place);
      if (window < 0) continue;
      const int64_t of_window = (plane * w.windows + window) * inner + here;
      if (places[of_window] == static_cast<float>(place)) sum += widen(d_y[of_window]);
    }
    d_x[at] = narrow<T>(sum);
  }
};

}  // namespace

int64_t max_pool_grad_workspace(const KernelSpec& spec) {
  return elements(spec.in[0]) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_max_pool(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, w = windows_of(attrs_as<WindowAttrs>(spec.attrs)),
                    n = elements(spec.out[0]), dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto type) {
      using T = decltype(type);
      T* const y = data<T>(call.out, 0);
      launch_flat<1>(context, "max_pool", static_cast<const T*>(y), n,
                     Largest<T>{w, data<const T>(call.in, 0), y, nullptr});
    });
  });
}

std::unique_ptr<Kernel> make_max_pool_grad(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, w = windows_of(attrs_as<WindowAttrs>(spec.attrs)),
                    windows = elements(spec.in[0]), n = elements(spec.out[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto type) {
      using T = decltype(type);
      float* const places = workspace<float>(call, windows);
      T* const d_x = data<T>(call.out, 0);
      launch_flat<1>(context, "max_pool_grad (places)", static_cast<const float*>(places), windows,
                     Largest<T>{w, data<const T>(call.in, 1), nullptr, places});
      launch_flat<1>(context, "max_pool_grad", static_cast<const T*>(d_x), n,
                     LargestGrad<T>{w, data<const T>(call.in, 0), places, d_x});
    });
  });
}

std::unique_ptr<Kernel> make_window(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, w = windows_of(attrs_as<WindowAttrs>(spec.attrs)),
                    n = elements(spec.out[0]), from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    with_type(from, [&](auto of_elements) {
      with_type(to, [&](auto of_result) {
        using T = decltype(of_elements);
        using To = decltype(of_result);
        To* const y = data<To>(call.out, 0);
        launch_flat<1>(context, "window", static_cast<const To*>(y), n,
                       Windows<T, To>{w, data<const T>(call.in, 0), y, call.accumulate});
      });
    });
  });
}

std::unique_ptr<Kernel> make_window_grad(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, w = windows_of(attrs_as<WindowAttrs>(spec.attrs)),
                    n = elements(spec.out[0]), from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    with_type(from, [&](auto of_windows) {
      with_type(to, [&](auto of_result) {
        using T = decltype(of_windows);
        using To = decltype(of_result);
        To* const x = data<To>(call.out, 0);
        launch_flat<1>(context, "window_grad", static_cast<const To*>(x), n,
                       WindowSums<T, To>{w, data<const T>(call.in, 0), x, call.accumulate});
      });
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
