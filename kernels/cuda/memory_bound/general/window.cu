// window and window_grad: a thread has an element of the result. Minimum memory traffic: what is read once, and what is
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
    const int64_t o[3] = {window / w.d[2].out / w.d[1].out, window / w.d[2].out % w.d[1].out,
                          window % w.d[2].out};
    const int64_t k[3] = {place / w.d[2].kernel / w.d[1].kernel,
                          place / w.d[2].kernel % w.d[1].kernel, place % w.d[2].kernel};
    int64_t position = plane;
    for (int i = 0; i < 3; ++i) {
      const int64_t here = w.d[i].element(o[i], k[i]);
      if (here < 0) return w.outside;
      position = position * w.d[i].size + here;
    }
    return widen(x[(position * w.samples + sample) * w.channels + channel]);
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
    const int64_t i[3] = {position / w.d[2].size / w.d[1].size,
                          position / w.d[2].size % w.d[1].size, position % w.d[2].size};
    float sum = 0;
    for (int64_t place = 0; place < w.kernel; ++place) {
      const int64_t k[3] = {place / w.d[2].kernel / w.d[1].kernel,
                            place / w.d[2].kernel % w.d[1].kernel, place % w.d[2].kernel};
      int64_t window = 0;
      bool has = true;
      for (int d = 0; d < 3; ++d) {
        const int64_t o = w.d[d].window(i[d], k[d]);
        has = has && o >= 0;
        window = window * w.d[d].out + o;
      }
      if (has)
        sum += widen(
            y[(((plane * w.windows + window) * w.samples + sample) * w.kernel + place) * w.channels +
              channel]);
    }
    return sum;
  }

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    x[at] = narrow<To>(accumulate ? widen(x[at]) + value(at) : value(at));
  }
};

}  // namespace

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
