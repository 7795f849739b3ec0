// uniform: values drawn from [0, 1), by the rule of runtime/core/philox.h. A thread has the elements of one Philox block in each
// row, which is what a sample has side by side. Minimum memory traffic: the result once.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "runtime/core/philox.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kOfBlock = 4;  // elements of a Philox block

// The result (outer, samples, inner). `blocks`: the most Philox blocks that a row's elements are of.
struct Drawn {
  uint32_t site;
  int64_t samples, inner, blocks, rows;
  const StepState* state;
  int64_t sample_offset;
  float* y;

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t row = at / blocks, outer = row / samples;
    const int64_t begin = outer * inner;  // the row's first element in its sample
    const int64_t block = begin / kOfBlock + at % blocks, first = block * kOfBlock;
    if (first >= begin + inner) return;
    const auto sample = static_cast<uint64_t>(state->first_sample + sample_offset + row % samples);
    const PhiloxBlock words =
        philox(stream_key(state->seed, kUniformStream + site),
               {static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32),
                static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)});
    float* const to = y + row * inner - begin;  // of element 0 of the sample, were it here
#pragma unroll
    for (int k = 0; k < kOfBlock; ++k)
      if (first + k >= begin && first + k < begin + inner)
        to[first + k] = static_cast<float>(words[k] >> 8) * 0x1p-24f;
  }
};

}  // namespace

std::unique_ptr<Kernel> make_uniform(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<UniformAttrs>(spec.attrs);
  const int64_t rows = elements(spec.out[0]) / attrs.inner;
  // A row of several that does not begin with a block has elements of one more.
  const bool even = attrs.inner % kOfBlock == 0 || rows == attrs.samples;
  const int64_t blocks = (attrs.inner + kOfBlock - 1) / kOfBlock + (even ? 0 : 1);
  const Drawn fixed{.site = attrs.site,
                    .samples = attrs.samples,
                    .inner = attrs.inner,
                    .blocks = blocks,
                    .rows = rows,
                    .state = nullptr,
                    .sample_offset = 0,
                    .y = nullptr};
  return kernel_of([context, fixed](const KernelCall& call) {
    Drawn drawn = fixed;
    drawn.state = call.state;
    drawn.sample_offset = call.sample_offset;
    drawn.y = data<float>(call.out, 0);
    const float* const anchor = nullptr;
    launch_flat<1>(context, "uniform", anchor, fixed.rows * fixed.blocks, drawn);
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
