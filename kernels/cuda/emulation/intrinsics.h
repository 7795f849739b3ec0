// CUDA's keywords and functions for emulated kernels, as far as kernels use them. They are in dstrain::emulated, as
// the emulated kernels are, so that a program can use real CUDA headers too.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <type_traits>

#include "kernels/cuda/emulation/grid.h"

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): CUDA's names

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict
// A host thread runs one block at a time, and a block runs on one host thread.
#define __shared__ static thread_local

namespace dstrain::emulated {

using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;

// --- barriers and memory order -----------------------------------------------------------------

inline void __syncthreads(const SourceLine& place = {"__syncthreads", __builtin_FILE(),
                                                     __builtin_LINE()}) {
  block_barrier(place);
}

inline void sync_group(int id, int threads,
                       const SourceLine& place = {"sync_group", __builtin_FILE(),
                                                  __builtin_LINE()}) {
  group_barrier(id, threads, place);
}

inline void __syncwarp(unsigned mask = ~0u, const SourceLine& place = {
                                                "__syncwarp", __builtin_FILE(), __builtin_LINE()}) {
  warp_collective(
      mask, nullptr, [](unsigned, void* const*) {}, true, place);
}

// --- shuffles and votes ------------------------------------------------------------------------

// The record of one lane in a shuffle or a vote: the value that it gives and the result that it gets. Only shuffles
// use `source`.
struct Exchange {
  uint64_t value, result;
  int source;  // lane of the warp
};

// Not checked by ThreadSanitizer: lanes exchange registers, not memory.
__attribute__((no_sanitize("thread"))) inline void exchange(unsigned lanes, void* const* payloads) {
  for (int k = 0; k < kWarp; ++k) {
    if ((lanes >> k & 1u) == 0) continue;
    auto* to = static_cast<Exchange*>(payloads[k]);
    const auto* from = static_cast<const Exchange*>(payloads[to->source]);
    // The value of a lane that takes no part is undefined.
    to->result = from ? from->value : 0xffff'ffff'ffff'ffffull;
  }
}

inline int lane_of_warp() {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  return static_cast<int>(thread % kWarp);
}

template <class T>
T shuffle(unsigned mask, T value, int source, const SourceLine& place) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  Exchange e{0, 0, source};
  std::memcpy(&e.value, &value, sizeof(T));
  warp_collective(mask, &e, exchange, false, place);
  std::memcpy(&value, &e.result, sizeof(T));
  return value;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = kWarp,
              const SourceLine& place = {"__shfl_sync", __builtin_FILE(), __builtin_LINE()}) {
  const int first = lane_of_warp() / width * width;
  return shuffle(mask, value, first + (source & (width - 1)), place);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = kWarp,
                  const SourceLine& place = {"__shfl_xor_sync", __builtin_FILE(),
                                             __builtin_LINE()}) {
  const int lane = lane_of_warp(), source = lane ^ lane_mask;
  return shuffle(mask, value, source / width <= lane / width ? source : lane, place);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = kWarp,
                   const SourceLine& place = {"__shfl_down_sync", __builtin_FILE(),
                                              __builtin_LINE()}) {
  const int lane = lane_of_warp(), source = lane + static_cast<int>(delta);
  return shuffle(mask, value, source / width == lane / width ? source : lane, place);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = kWarp,
                 const SourceLine& place = {"__shfl_up_sync", __builtin_FILE(), __builtin_LINE()}) {
  const int lane = lane_of_warp(), source = lane - static_cast<int>(delta);
  return shuffle(mask, value, source >= lane / width * width ? source : lane, place);
}

__attribute__((no_sanitize("thread"))) inline void vote(unsigned lanes, void* const* payloads) {
  uint64_t ballot = 0;
  for (int k = 0; k < kWarp; ++k)
    if ((lanes >> k & 1u) != 0 && static_cast<Exchange*>(payloads[k])->value != 0)
      ballot |= uint64_t{1} << k;
  for (int k = 0; k < kWarp; ++k)
    if ((lanes >> k & 1u) != 0)
      static_cast<Exchange*>(payloads[k])->result = ballot | uint64_t{lanes} << 32;
}

// Returns the ballot in the low half and the lanes that took part in the high half.
inline uint64_t votes(unsigned mask, bool predicate, const SourceLine& place) {
  Exchange e{predicate ? 1u : 0u, 0, 0};
  warp_collective(mask, &e, vote, false, place);
  return e.result;
}

inline unsigned __ballot_sync(unsigned mask, bool predicate,
                              const SourceLine& place = {"__ballot_sync", __builtin_FILE(),
                                                         __builtin_LINE()}) {
  return static_cast<unsigned>(votes(mask, predicate, place));
}

inline int __any_sync(unsigned mask, bool predicate,
                      const SourceLine& place = {"__any_sync", __builtin_FILE(),
                                                 __builtin_LINE()}) {
  return static_cast<unsigned>(votes(mask, predicate, place)) != 0;
}

inline int __all_sync(unsigned mask, bool predicate,
                      const SourceLine& place = {"__all_sync", __builtin_FILE(),
                                                 __builtin_LINE()}) {
  const uint64_t v = votes(mask, predicate, place);
  return static_cast<unsigned>(v) == static_cast<unsigned>(v >> 32);
}

// --- memory ------------------------------------------------------------------------------------

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}

// Atomic and relaxed, as on CUDA: they order no other accesses. For integers only.
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "a sum of floats would depend on the order");
  return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}

template <class T, class F>
T atomic_update(T* p, const F& f) {
  static_assert(std::is_integral_v<T>);
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, f(old), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  return atomic_update(p, [=](T old) { return std::max(old, value); });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return atomic_update(p, [=](T old) { return std::min(old, value); });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  __atomic_compare_exchange_n(p, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}

// --- arithmetic --------------------------------------------------------------------------------

inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = std::sin(std::numbers::pi * x);
  *cosine = std::cos(std::numbers::pi * x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(uint64_t{x} * y >> 32);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}

}  // namespace dstrain::emulated

// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
