// update_buffer: y = keep * y + share * sum, with two roundings (a fused multiply-add), or the sum itself in a first
// update that begins with it. Does nothing if state->skip is set. Gives the bits of kernels/cpu/memory_bound/update_buffer.cpp. Minimum memory traffic: 12 bytes per element.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

struct UpdateBuffer {
  static constexpr int kN = pack_of(sizeof(float));
  const StepState* state;
  UpdateBufferAttrs attrs;
  const float* sum;
  float* y;

  __device__ void operator()(int64_t at, int64_t n) const {
    if (state->skip) return;
    float s[kN], v[kN];
    load(sum, at, n, s);
    load(y, at, n, v);
    const bool begins = attrs.begins_with_sum && state->applied_steps == 0;
#pragma unroll
    for (int k = 0; k < kN; ++k)
      v[k] = begins ? s[k] : fmaf(attrs.keep, v[k], attrs.share * s[k]);
    store(v, y, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_update_buffer(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]),
                    attrs = attrs_as<UpdateBufferAttrs>(spec.attrs)](const KernelCall& call) {
    float* y = data<float>(call.out, 0);
    launch_flat<UpdateBuffer::kN>(
        context, "update_buffer", y, n,
        UpdateBuffer{call.state, attrs, data<const float>(call.in, 0), y});
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
