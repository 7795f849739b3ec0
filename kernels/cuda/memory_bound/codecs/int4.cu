// quantize_int4, requantize_int4 and sum_int4 (runtime/ir/quantized.h). Minimum memory traffic, bytes per element of s
// bytes: quantize_int4 s + 0.53; of K parts that are added, 0.53 K and 0.53 or s.
#include "kernels/cuda/memory_bound/codecs/int4.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

using namespace packed_int4;

constexpr int kThreads = 256;

Grid grid_of(int64_t parts, int64_t n) {
  const int64_t threads = parts * block_count(n) * kLanes;
  return Grid{static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads};
}

__device__ Spot spot_of_thread(int64_t parts, int64_t n) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t all = thread / kLanes, blocks = block_count(n);
  const int64_t part = all / blocks, block = all % blocks;
  return {part, block, part < parts ? block * kInt4Block + thread % kLanes * kOfLane : n};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    quantize_blocks(const T* x, int64_t parts, int64_t n, int64_t group, uint8_t* packed) {
  const Spot spot = spot_of_thread(parts, n);
  float v[kOfLane] = {};
  if (spot.at < n) load(x + spot.part * n, spot.at, n, v);
  const int64_t to = spot.part % group * (parts / group) + spot.part / group;
  float scale;
  pack(v, spot, n, packed + to * int4_bytes(n), scale);
}

__global__ void __launch_bounds__(kThreads)
    requantize_blocks(const uint8_t* packed, int64_t senders, int64_t sums, int64_t n,
                      uint8_t* out) {
  const Spot spot = spot_of_thread(sums, n);
  const int64_t at = spot.part * int4_bytes(n);
  float v[kOfLane];
  add_parts(packed + at, senders, sums * int4_bytes(n), spot, n, v);
  float scale;
  pack(v, spot, n, out + at, scale);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_blocks(const uint8_t* packed, int64_t senders, int64_t sums, int64_t first, int64_t wanted,
               int64_t n, bool accumulate, T* y) {
  const Spot spot = spot_of_thread(wanted, n);
  if (spot.at >= n) return;
  float v[kOfLane];
  add_parts(packed + (first + spot.part) * int4_bytes(n), senders, sums * int4_bytes(n), spot, n,
            v);
  T* to = y + spot.part * n;
  if (accumulate) {
    float before[kOfLane];
    load(to, spot.at, n, before);
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) v[k] = before[k] + v[k];
  }
  store(v, to, spot.at, n);
}

}  // namespace

std::unique_ptr<Kernel> make_quantize_int4(const KernelSpec& spec, const LaunchContext& context) {
  if (spec.in.size() > 1) return make_quantize_int4_with_errors(spec, context);
  const auto attrs = attrs_as<Int4Attrs>(spec.attrs);
  return kernel_of([context, attrs, n = attrs.part, parts = elements(spec.in[0]) / attrs.part,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(context.stream, "quantize_int4", grid_of(parts, n), quantize_blocks<T>,
             data<const T>(call.in, 0), parts, n, attrs.group, data<uint8_t>(call.out, 0));
    });
  });
}

std::unique_ptr<Kernel> make_requantize_int4(const KernelSpec& spec, const LaunchContext& context) {
  if (spec.in.size() > 1) return make_requantize_int4_with_errors(spec, context);
  return kernel_of([context, n = attrs_as<Int4Attrs>(spec.attrs).part,
                    senders = spec.in[0].shape[0],
                    sums = spec.in[0].shape[1]](const KernelCall& call) {
    launch(context.stream, "requantize_int4", grid_of(sums, n), requantize_blocks,
           data<const uint8_t>(call.in, 0), senders, sums, n, data<uint8_t>(call.out, 0));
  });
}

std::unique_ptr<Kernel> make_sum_int4(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<Int4Attrs>(spec.attrs);
  const Shape shape = spec.in[0].shape;
  return kernel_of([context, attrs, n = attrs.part, senders = shape.rank == 3 ? shape[0] : 1,
                    sums = shape[-2], wanted = elements(spec.out[0]) / attrs.part,
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(context.stream, "sum_int4", grid_of(wanted, n), sum_blocks<T>,
             data<const uint8_t>(call.in, 0), senders, sums, attrs.first, wanted, n,
             call.accumulate, data<T>(call.out, 0));
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
