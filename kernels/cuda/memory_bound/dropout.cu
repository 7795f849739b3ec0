// add_dropout (y = x + dropout(h)) and dropout_grad, by the rule of runtime/core/philox.h: a thread computes four
// Philox blocks, each for eight neighbouring elements of a sample.
// Minimum memory traffic, bytes per element of s bytes: add_dropout 3s, dropout_grad 2s.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/dropout.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kRepeats = 4;  // Philox blocks of a thread

// The operands have `elements` elements, which begin with element `lead` of sample `first_sample` of the micro-batch and
// are of `samples` samples of `sample_elements` (T * C). Threads begin with Philox block `first_block` of each sample.
struct Dropout {
  DropoutRule rule;
  uint32_t site;
  int64_t samples, sample_elements;
  int64_t first_sample, lead, elements, first_block;
  const StepState* state;
  int64_t sample_offset;
};

// Returns which elements of its samples an operand of a part has.
Dropout samples_of(const DropoutAttrs& attrs, const TensorSpec& operand) {
  const int64_t c = columns(operand), n = std::max<int64_t>(1, attrs.seq_len) * c;
  Dropout d{.rule = DropoutRule(attrs.dropout),
            .site = attrs.site,
            .samples = 0,
            .sample_elements = n,
            .first_sample = 0,
            .lead = 0,
            .elements = elements(operand),
            .first_block = 0,
            .state = nullptr,
            .sample_offset = 0};
  if (d.elements == 0) return d;
  const int64_t first = attrs.part.first * c;
  d.first_sample = first / n;
  d.lead = first % n;
  d.samples = (d.lead + d.elements + n - 1) / n;
  if (d.samples == 1) d.first_block = d.lead / kDrawn;
  return d;
}

// x is null for y = dropout(h).
template <class T>
__global__ void __launch_bounds__(kFlatThreads)
    dropout_kernel(Dropout d, const T* x, const T* h, T* y) {
  const int64_t n = d.sample_elements;
  const PhiloxKey key = stream_key(d.state->seed, kDropoutStream + d.site);
  const auto first =
      static_cast<uint64_t>(d.state->first_sample + d.sample_offset + d.first_sample);
  for (int64_t b = blockIdx.y; b < d.samples; b += gridDim.y) {
    const uint64_t sample = first + static_cast<uint64_t>(b);
    const int64_t begin = b * n - d.lead, end = min(begin + n, d.elements);
#pragma unroll
    for (int r = 0; r < kRepeats; ++r) {
      const int64_t block = d.first_block +
                            (static_cast<int64_t>(blockIdx.x) * kRepeats + r) * kFlatThreads +
                            threadIdx.x;
      const int64_t at = begin + block * kDrawn;
      if (at >= end) break;
      if (at + kDrawn <= 0) continue;
      float v[kDrawn];
      load(h, at, end, v);
      if (d.rule.threshold != 0)
        drop(v, d.rule.threshold, key, sample, static_cast<uint64_t>(block));
      if (x) {
        float residual[kDrawn];
        load(x, at, end, residual);
#pragma unroll
        for (int k = 0; k < kDrawn; ++k) v[k] = fmaf(v[k], d.rule.scale, residual[k]);
      } else {
#pragma unroll
        for (int k = 0; k < kDrawn; ++k) v[k] *= d.rule.scale;
      }
      store(v, y, at, end);
    }
  }
}

std::unique_ptr<Kernel> make_dropout(const KernelSpec& spec, const LaunchContext& context,
                                     bool residual) {
  const Dropout fixed = samples_of(attrs_as<DropoutAttrs>(spec.attrs), spec.out[0]);
  const int64_t per_block = int64_t{kFlatThreads} * kRepeats * kDrawn;
  // The elements of a sample that threads look at.
  const int64_t n = fixed.samples == 1 ? fixed.lead + fixed.elements - fixed.first_block * kDrawn
                                       : fixed.sample_elements;
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
