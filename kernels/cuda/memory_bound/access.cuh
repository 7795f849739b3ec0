// Packs: N neighbouring elements that a thread loads and stores at once, and kernels over flat ranges.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// As one access of N * sizeof(T) bytes, at most 16 of them at a time.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Packed {
  T v[N];
};

template <int N, class T>
__device__ __forceinline__ bool aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % alignof(Packed<T, N>) == 0;
}

// v[k] = p[at + k], 0 where that is outside of [0, n).
template <int N, class T>
__device__ __forceinline__ void load(const T* p, int64_t at, int64_t n, float (&v)[N]) {
  if (at >= 0 && at + N <= n && aligned<N>(p + at)) {
    const Packed<T, N> pack = *reinterpret_cast<const Packed<T, N>*>(p + at);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = widen(pack.v[k]);
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] = at + k >= 0 && at + k < n ? widen(p[at + k]) : 0.0f;
}

// p[at + k] = v[k], rounded, where that is inside of [0, n).
template <int N, class T>
__device__ __forceinline__ void store(const float (&v)[N], T* p, int64_t at, int64_t n) {
  if (at >= 0 && at + N <= n && aligned<N>(p + at)) {
    Packed<T, N> pack;
#pragma unroll
    for (int k = 0; k < N; ++k) pack.v[k] = narrow<T>(v[k]);
    *reinterpret_cast<Packed<T, N>*>(p + at) = pack;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (at + k >= 0 && at + k < n) p[at + k] = narrow<T>(v[k]);
}

// Elements of a pack where the widest operand has `bytes` bytes an element.
constexpr int pack_of(size_t bytes) {
  return static_cast<int>(16 / bytes);
}

inline constexpr int kFlatThreads = 256;

// f(at) for the packs that cover [0, n): the first starts at `first` <= 0.
template <int N, class F>
__global__ void __launch_bounds__(kFlatThreads) flat_kernel(F f, int64_t first, int64_t n) {
  const int64_t at = first + N * (static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x);
  if (at < n) f(at, n);
}

// Runs f over [0, n) in packs of N elements. `anchor`, an operand, starts a pack where it is aligned, so
// that operands which start at the same place between packs are all aligned.
template <int N, class T, class F>
void launch_flat(const LaunchContext& context, const char* name, const T* anchor, int64_t n,
                 const F& f) {
  if (n == 0) return;
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(anchor) / sizeof(T) % N);
  const int64_t packs = (n + past + N - 1) / N;
  const Grid grid{static_cast<unsigned>((packs + kFlatThreads - 1) / kFlatThreads), kFlatThreads};
  launch(context.stream, name, grid, flat_kernel<N, F>, f, -past, n);
}

// f(T{}) with the run dtype's element type.
template <class F>
void with_type(DType dtype, const F& f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else if (dtype == DType::f16)
    f(f16{});
  else
    f(float{});
}

}  // namespace dstrain::DSTRAIN_BACKEND
