// Packs (N neighbouring elements that a thread loads and stores at once) and kernels over flat ranges.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// N neighbouring elements, aligned so that a thread loads and stores them in accesses of up to 16 bytes.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Packed {
  T v[N];
};

template <int N, class T>
__device__ __forceinline__ bool aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % alignof(Packed<T, N>) == 0;
}

// The number of elements beyond a pack that load_between may read on either side.
template <class T, int N>
constexpr int kAround = static_cast<int>(alignof(Packed<T, N>) / sizeof(T));

// Moves all elements down by kBit places if `past` has that bit.
template <int kBit, int M>
__device__ __forceinline__ void shift_where(int past, float (&all)[M]) {
#pragma unroll
  for (int k = 0; k + kBit < M; ++k) all[k] = (past & kBit) != 0 ? all[k + kBit] : all[k];
}

// Loads a pack of N elements from any element's address by aligned accesses.
template <int N, class T>
__device__ __forceinline__ void load_between(const T* p, float (&v)[N]) {
  constexpr int kStep = kAround<T, N>;
  const auto past = static_cast<int>(reinterpret_cast<uintptr_t>(p) / sizeof(T) % kStep);
  float all[N + kStep];
#pragma unroll
  for (int i = 0; i < N + kStep; i += kStep) {
    const auto chunk = *reinterpret_cast<const Packed<T, kStep>*>(p - past + i);
#pragma unroll
    for (int k = 0; k < kStep; ++k) all[i + k] = widen(chunk.v[k]);
  }
  if constexpr (kStep > 4) shift_where<4>(past, all);
  if constexpr (kStep > 2) shift_where<2>(past, all);
  if constexpr (kStep > 1) shift_where<1>(past, all);
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] = all[k];
}

// v[k] = p[at + k], or 0 if that is outside [0, n). Reads no other element.
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

// The same for an operand that no thread of the launch writes. It may read neighbours inside [0, n), and so is fast
// for unaligned packs too.
template <int N, class T>
__device__ __forceinline__ void load_constant(const T* p, int64_t at, int64_t n, float (&v)[N]) {
  if (!aligned<N>(p + at) && at >= kAround<T, N> && at + N + kAround<T, N> <= n)
    load_between(p + at, v);
  else
    load(p, at, n, v);
}

// p[at + k] = v[k], rounded, if that is inside [0, n).
template <int N, class T>
__device__ __forceinline__ void store(const float (&v)[N], T* p, int64_t at, int64_t n) {
  if (at >= 0 && at + N <= n && aligned<N>(p + at)) {
    Packed<T, N> pack;
#pragma unroll
    for (int k = 0; k < N; ++k) pack.v[k] = narrow<T>(v[k]);
    store_whole(reinterpret_cast<Packed<T, N>*>(p + at), pack);
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (at + k >= 0 && at + k < n) p[at + k] = narrow<T>(v[k]);
}

// Widens the elements in 16-byte words.
template <class T, int N>
__device__ __forceinline__ void widen_words(const uint4* words, float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N * static_cast<int>(sizeof(T)) / 16; ++i) {
    const unsigned word[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (sizeof(T) == 4) {
        v[4 * i + k] = __uint_as_float(word[k]);
      } else {
        v[8 * i + 2 * k] = widen(T{static_cast<uint16_t>(word[k])});
        v[8 * i + 2 * k + 1] = widen(T{static_cast<uint16_t>(word[k] >> 16)});
      }
    }
  }
}

// A pack of N elements in the registers of a thread, loaded first and widened later, so that a thread has several
// loads in flight. kAligned: packs are whole and aligned, as `whole_packs` finds; else they may be neither.
template <bool kAligned, class T, int N>
class PackOf {
 public:
  // Loads elements [at, at + N) of the constant p; those outside [0, n) are 0.
  __device__ __forceinline__ void load(const T* p, int64_t at, int64_t n) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words_[i] = load_words(p + at + i * kOfWords, at < n);
  }
  // Loads elements [at, at + N), all of which there are.
  __device__ __forceinline__ void load(const T* p, int64_t at) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words_[i] = load_words(p + at + i * kOfWords);
  }
  __device__ __forceinline__ void widen_to(float (&v)[N]) const {
    widen_words<T>(words_, v);
  }

 private:
  static constexpr int kOfWords = 16 / sizeof(T), kWords = N / kOfWords;
  static_assert(N % kOfWords == 0);
  uint4 words_[kWords];
};

template <class T, int N>
class PackOf<false, T, N> {
 public:
  __device__ __forceinline__ void load(const T* p, int64_t at, int64_t n) {
    load_constant(p, at, n, v_);
  }
  __device__ __forceinline__ void widen_to(float (&v)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = v_[k];
  }

 private:
  float v_[N];
};

// p[at + k] = v[k], rounded, if that is inside [0, n), for packs as those of PackOf.
template <bool kAligned, int N, class T>
__device__ __forceinline__ void store_pack(const float (&v)[N], T* p, int64_t at, int64_t n) {
  if constexpr (kAligned) {
    if (at >= n) return;
    Packed<T, N> pack;
#pragma unroll
    for (int k = 0; k < N; ++k) pack.v[k] = narrow<T>(v[k]);
    store_whole(reinterpret_cast<Packed<T, N>*>(p + at), pack);
  } else {
    store(v, p, at, n);
  }
}

// Returns whether rows of c elements consist of whole aligned packs, in all operands (null: absent).
template <int N, class... T>
bool whole_packs(int64_t c, const T*... operands) {
  return c % N == 0 &&
         ((reinterpret_cast<uintptr_t>(operands) % alignof(Packed<T, N>) == 0) && ...);
}

// Calls f(std::true_type()) or f(std::false_type()).
template <class F>
void with_flag(bool flag, const F& f) {
  if (flag)
    f(std::true_type());
  else
    f(std::false_type());
}
// Calls f with both flags so.
template <class F>
void with_flags(bool first, bool second, const F& f) {
  with_flag(first, [&](auto a) { with_flag(second, [&](auto b) { f(a, b); }); });
}

// Returns the index (0 or less) at which the packs of a range that starts at p begin, so that all packs but the
// first and the last are aligned.
template <int N, class T>
__host__ __device__ __forceinline__ int64_t pack_start(const T* p) {
  return -static_cast<int64_t>(reinterpret_cast<uintptr_t>(p) / sizeof(T) % N);
}

// Returns the number of elements in a pack if the widest operand has `bytes` bytes per element.
constexpr int pack_of(size_t bytes) {
  return static_cast<int>(16 / bytes);
}

inline constexpr int kFlatThreads = 256;

// Calls f(at) for the packs that cover [0, n); the first pack starts at `first` <= 0.
template <int N, class F>
__global__ void __launch_bounds__(kFlatThreads) flat_kernel(F f, int64_t first, int64_t n) {
  const int64_t at = first + N * (static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x);
  if (at < n) f(at, n);
}

// Calls f for [0, n) in packs of N elements. Packs start where the operand `anchor` is aligned; operands with the
// same offset from alignment are then aligned too.
template <int N, class T, class F>
void launch_flat(const LaunchContext& context, const char* name, const T* anchor, int64_t n,
                 const F& f) {
  if (n == 0) return;
  const int64_t first = pack_start<N>(anchor), packs = (n - first + N - 1) / N;
  const Grid grid{static_cast<unsigned>((packs + kFlatThreads - 1) / kFlatThreads), kFlatThreads};
  launch(context.stream, name, grid, flat_kernel<N, F>, f, first, n);
}

// Calls f(T{}) with the element type T of `dtype`.
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
