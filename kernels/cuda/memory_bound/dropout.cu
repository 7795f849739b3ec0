// add_dropout (y = x + dropout(h)) and dropout_grad, by the rule of runtime/core/philox.h: a thread computes four
// Philox blocks, each for eight neighbouring elements of a sample.
// Minimum memory traffic, bytes per element of s bytes: add_dropout 3s, dropout_grad 2s.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/dropout.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kRepeats = 4;  // Philox blocks of a thread

struct Dropout {
  DropoutRule rule;
  uint32_t site;
  int64_t samples, sample_elements;  // B, T * C
  const StepState* state;
  int64_t sample_offset;
};

// x is null for y = dropout(h).
template <class T>
__global__ void __launch_bounds__(kFlatThreads)
    dropout_kernel(Dropout d, const T* x, const T* h, T* y) {
  const int64_t n = d.sample_elements;
  const PhiloxKey key = stream_key(d.state->seed, kDropoutStream + d.site);
  const auto first = static_cast<uint64_t>(d.state->first_sample + d.sample_offset);
  for (int64_t b = blockIdx.y; b < d.samples; b += gridDim.y) {
    const uint64_t sample = first + static_cast<uint64_t>(b);
#pragma unroll
    for (int r = 0; r < kRepeats; ++r) {
      const int64_t block =
          (static_cast<int64_t>(blockIdx.x) * kRepeats + r) * kFlatThreads + threadIdx.x;
      const int64_t at = block * kDrawn;
      if (at >= n) break;
      float v[kDrawn];
      load(h + b * n, at, n, v);
      if (d.rule.threshold != 0)
        drop(v, d.rule.threshold, key, sample, static_cast<uint64_t>(block));
      if (x) {
        float residual[kDrawn];
        load(x + b * n, at, n, residual);
#pragma unroll
        for (int k = 0; k < kDrawn; ++k) v[k] = fmaf(v[k], d.rule.scale, residual[k]);
      } else {
#pragma unroll
        for (int k = 0; k < kDrawn; ++k) v[k] *= d.rule.scale;
      }
      store(v, y + b * n, at, n);
    }
  }
}

std::unique_ptr<Kernel> make_dropout(const KernelSpec& spec, const LaunchContext& context,
                                     bool residual) {
  const auto attrs = attrs_as<DropoutAttrs>(spec.attrs);
  const int64_t c = columns(spec.out[0]), n = std::max<int64_t>(1, attrs.seq_len) * c;
  const Dropout fixed{
      DropoutRule(attrs.dropout), attrs.site, n > 0 ? elements(spec.out[0]) / n : 0, n, nullptr, 0};
  const int64_t per_block = int64_t{kFlatThreads} * kRepeats * kDrawn;
  const Grid grid{dim3(static_cast<unsigned>((n + per_block - 1) / per_block),
                       static_cast<unsigned>(std::min<int64_t>(fixed.samples, 65535))),
                  kFlatThreads};
  return kernel_of(
      [context, fixed, grid, residual, dtype = spec.out[0].dtype](const KernelCall& call) {
        if (fixed.samples == 0) return;
        Dropout d = fixed;
        d.state = call.state;
        d.sample_offset = call.sample_offset;
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          launch(context.stream, residual ? "add_dropout" : "dropout_grad", grid, dropout_kernel<T>,
                 d, residual ? data<const T>(call.in, 0) : nullptr,
                 data<const T>(call.in, residual ? 1 : 0), data<T>(call.out, 0));
        });
      });
}

}  // namespace

std::unique_ptr<Kernel> make_add_dropout(const KernelSpec& spec, const LaunchContext& context) {
  return make_dropout(spec, context, true);
}

std::unique_ptr<Kernel> make_dropout_grad(const KernelSpec& spec, const LaunchContext& context) {
  return make_dropout(spec, context, false);
}

}  // namespace dstrain::DSTRAIN_BACKEND
