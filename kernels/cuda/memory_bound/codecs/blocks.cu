// unpack_weight (runtime/core/blocks/weight_blocks.h). A thread has 8 neighbouring values of each of 4 pairs of groups, and
// loads all their codes and scales before it uses the first. Gives the bits of kernels/cpu/memory_bound/codecs/blocks.cpp.
// Minimum memory traffic, bytes per value of s bytes: s + 1.0625 (int8), s + 0.5625 (nf4).
#include <algorithm>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "runtime/core/blocks/weight_blocks.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kThreads = 256, kOfThread = 8, kPacks = 4;
constexpr int64_t kStride = kThreads * kOfThread, kOfBlock = kPacks * kStride;
static_assert(kStride % kWeightGroup == 0 && kWeightBlock % kOfThread == 0);

struct Nf4Table {
  float levels[16];
};

template <BlockFormat kFormat>
constexpr int kCodeBytes = kFormat == BlockFormat::int8 ? kOfThread : kOfThread / 2;

// N bytes from an aligned address, or from any if not kAligned.
template <bool kAligned, int N>
__device__ __forceinline__ Packed<uint8_t, N> load_bytes(const uint8_t* from) {
  Packed<uint8_t, N> bytes;
  if constexpr (kAligned) {
    bytes = *reinterpret_cast<const Packed<uint8_t, N>*>(from);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) bytes.v[k] = from[k];
  }
  return bytes;
}

__device__ __forceinline__ float scale_of(Packed<uint8_t, 4> bytes) {
  unsigned bits = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) bits |= static_cast<unsigned>(bytes.v[k]) << (8 * k);
  return __uint_as_float(bits);
}

template <BlockFormat kFormat, bool kAligned, class T>
__global__ void __launch_bounds__(kThreads)
    unpack_groups_of(const uint8_t* packed, int64_t n, Nf4Table table, T* y) {
  __shared__ float levels[16];  // its lanes may differ, which constant memory takes one by one
  if (kFormat == BlockFormat::nf4) {
    if (threadIdx.x < 16) levels[threadIdx.x] = table.levels[threadIdx.x];
    __syncthreads();
  }
  constexpr int kBytes = kCodeBytes<kFormat>;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * kOfBlock + static_cast<int64_t>(threadIdx.x) * kOfThread;
  Packed<uint8_t, kBytes> codes[kPacks];
  Packed<uint8_t, 4> scales[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t at = first + p * kStride;
    if (at >= n) continue;
    const uint8_t* group = packed + at / kWeightGroup * group_bytes(kFormat);
    const auto i = static_cast<int>(at % kWeightGroup);
    codes[p] = load_bytes<kAligned, kBytes>(group + kWeightScales + i / kOfThread * kBytes);
    scales[p] = load_bytes<kAligned, 4>(group + i / kWeightBlock * 4);
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t at = first + p * kStride;
    if (at >= n) continue;
    const float scale = scale_of(scales[p]);
    float v[kOfThread];
#pragma unroll
    for (int k = 0; k < kOfThread; ++k) {
      if constexpr (kFormat == BlockFormat::int8)
        v[k] = static_cast<float>(static_cast<int8_t>(codes[p].v[k])) * scale;
      else
        v[k] = levels[codes[p].v[k / 2] >> (k % 2 * 4) & 15] * scale;
    }
    store(v, y, at, n);
  }
}

template <BlockFormat kFormat>
void launch_unpack(cudaStream_t stream, const uint8_t* packed, int64_t n, DType dtype, void* y) {
  Nf4Table table;
  std::copy(kNf4Levels.begin(), kNf4Levels.end(), table.levels);
  const Grid grid{static_cast<unsigned>((n + kOfBlock - 1) / kOfBlock), kThreads};
  const bool whole = reinterpret_cast<uintptr_t>(packed) % kOfThread == 0;
  with_type(dtype, [&](auto t) {
    using T = decltype(t);
    launch(stream, "unpack_weight", grid,
           whole ? unpack_groups_of<kFormat, true, T> : unpack_groups_of<kFormat, false, T>, packed,
           n, table, static_cast<T*>(y));
  });
}

}  // namespace

std::unique_ptr<Kernel> make_unpack_weight(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
                    format = attrs_as<UnpackAttrs>(spec.attrs).format](const KernelCall& call) {
    if (n == 0) return;
    const auto* packed = data<const uint8_t>(call.in, 0);
    if (format == BlockFormat::int8)
      launch_unpack<BlockFormat::int8>(context.stream, packed, n, dtype, data(call.out, 0));
    else
      launch_unpack<BlockFormat::nf4>(context.stream, packed, n, dtype, data(call.out, 0));
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
