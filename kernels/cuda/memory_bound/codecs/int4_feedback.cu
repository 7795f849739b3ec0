// quantize_int4 and requantize_int4 with error feedback (runtime/ir/ops/boundary.h). A warp has a block of errors,
// which
// has two of int4, a lane 8 neighbouring values. Gives the bits of kernels/cpu/memory_bound/codecs/int4_feedback.cpp. Minimum
// memory traffic: that of the ops without (int4.cu), and 2.03 bytes an element.
#include "kernels/cuda/memory_bound/codecs/int4.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

using namespace packed_int4;

constexpr int kWarps = 8;
static_assert(32 * kOfLane == kQuantizedBlock);
constexpr unsigned kLeastNormal = 0x00800000u;
constexpr float kLargestError = 1.7014118346046923e38f;  // 2^127

// The errors of all parts, those before and the next ones, which may be the same.
struct Feedback {
  const uint8_t* error;
  uint8_t* next;
  bool goes_on;  // from `next`
  float beta;
  int64_t steps;
  const StepState* state;
};

__host__ __device__ int64_t error_blocks(int64_t n) {
  return (n + kQuantizedBlock - 1) / kQuantizedBlock;
}

Grid grid_of(int64_t parts, int64_t n) {
  const int64_t blocks = parts * error_blocks(n);
  return Grid{static_cast<unsigned>((blocks + kWarps - 1) / kWarps), dim3(32, kWarps)};
}

__device__ Spot spot_of_lane(int64_t parts, int64_t n) {
  const int64_t all = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  const int64_t part = all / error_blocks(n), first = all % error_blocks(n) * kQuantizedBlock;
  const int64_t at = part < parts ? first + threadIdx.x * kOfLane : n;
  return {part, at / kInt4Block, at};
}

// Packs the values of a warp with their errors, and stores the next errors.
__device__ void pack_with_errors(float (&v)[kOfLane], const Spot& spot, int64_t n,
                                 const Feedback& feedback, uint8_t* packed) {
  const int64_t base = spot.part * quantized_bytes(n), block = spot.at / kQuantizedBlock;
  const bool anew = feedback.state->applied_steps % feedback.steps == 0;
  const uint8_t* before = feedback.goes_on ? feedback.next : anew ? nullptr : feedback.error;
  const float loss_scale = feedback.state->loss_scale, down = __fdiv_rn(1.0f, loss_scale);
  const int64_t codes_at = base + kWord * error_blocks(n) + spot.at;
  float error[kOfLane] = {};
  if (before && spot.at < n) {
    const float step = __uint_as_float(load_word(before + base + kWord * block));
#pragma unroll
    for (int k = 0; k < kOfLane; ++k)
      if (spot.at + k < n)
        error[k] = static_cast<float>(static_cast<int8_t>(before[codes_at + k])) * step;
  }
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) v[k] = v[k] + error[k] * loss_scale;
  float scale;
  const Codes sent = pack(v, spot, n, packed, scale);
  unsigned largest = 0;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const float lost = (v[k] - value_of(sent, k, scale)) * down;
    if (spot.at + k < n && !isinf(scale))
      error[k] = error[k] * feedback.beta + lost * (1.0f - feedback.beta);
    largest = max(largest, __float_as_uint(error[k]) & 0x7fffffffu);
  }
#pragma unroll
  for (int half = 16; half > 0; half /= 2)
    largest = max(largest, __shfl_xor_sync(~0u, largest, half));
  __syncwarp();  // errors may be written in place: all lanes have read theirs
  if (spot.at >= n) return;
  float step = __fdiv_rn(__uint_as_float(largest), 127.0f);
  if (!(__uint_as_float(largest) < kLargestError) || __float_as_uint(step) < kLeastNormal) step = 0;
  if (threadIdx.x == 0) store_word(__float_as_uint(step), feedback.next + base + kWord * block);
  const float inverse = step > 0 ? __fdiv_rn(1.0f, step) : 0.0f;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k)
    if (spot.at + k < n)
      feedback.next[codes_at + k] =
          step > 0 ? static_cast<uint8_t>(static_cast<int>(rintf(error[k] * inverse))) : uint8_t{0};
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    quantize_blocks(const T* x, int64_t parts, int64_t n, int64_t group, Feedback feedback,
                    uint8_t* packed) {
  const Spot spot = spot_of_lane(parts, n);
  float v[kOfLane] = {};
  if (spot.at < n) load(x + spot.part * n, spot.at, n, v);
  const int64_t to = spot.part % group * (parts / group) + spot.part / group;
  pack_with_errors(v, spot, n, feedback, packed + to * int4_bytes(n));
}

__global__ void __launch_bounds__(32 * kWarps)
    requantize_blocks(const uint8_t* packed, int64_t senders, int64_t sums, int64_t n,
                      Feedback feedback, uint8_t* out) {
  const Spot spot = spot_of_lane(sums, n);
  const int64_t at = spot.part * int4_bytes(n);
  float v[kOfLane];
  add_parts(packed + at, senders, sums * int4_bytes(n), spot, n, v);
  pack_with_errors(v, spot, n, feedback, out + at);
}

Feedback feedback_of(const KernelCall& call, const Int4Attrs& attrs) {
  return {data<const uint8_t>(call.in, 1),
          data<uint8_t>(call.out, 1),
          call.accumulate,
          attrs.error_beta,
          attrs.error_steps,
          call.state};
}

}  // namespace

std::unique_ptr<Kernel> make_quantize_int4_with_errors(const KernelSpec& spec,
                                                       const LaunchContext& context) {
  const auto attrs = attrs_as<Int4Attrs>(spec.attrs);
  return kernel_of([context, attrs, n = attrs.part, parts = elements(spec.in[0]) / attrs.part,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(context.stream, "quantize_int4 with errors", grid_of(parts, n), quantize_blocks<T>,
             data<const T>(call.in, 0), parts, n, attrs.group, feedback_of(call, attrs),
             data<uint8_t>(call.out, 0));
    });
  });
}

std::unique_ptr<Kernel> make_requantize_int4_with_errors(const KernelSpec& spec,
                                                         const LaunchContext& context) {
  return kernel_of([context, attrs = attrs_as<Int4Attrs>(spec.attrs), senders = spec.in[0].shape[0],
                    sums = spec.in[0].shape[1]](const KernelCall& call) {
    launch(context.stream, "requantize_int4 with errors", grid_of(sums, attrs.part),
           requantize_blocks, data<const uint8_t>(call.in, 0), senders, sums, attrs.part,
           feedback_of(call, attrs), data<uint8_t>(call.out, 0));
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
