// Implements kernels/cuda/launch.cuh for GPUs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "runtime/core/dtype.h"

#define DSTRAIN_BACKEND cuda

namespace dstrain::cuda {

inline constexpr char kBackendName[] = "cuda";

// The configuration of a launch: numbers of blocks and of threads in a block, and bytes of dynamic shared memory of
// a block.
struct Grid {
  dim3 blocks, threads;
  size_t shared = 0;
};

// Throws RunError with the kernel's name if a call of CUDA failed.
void check_cuda(cudaError_t status, const char* what);

template <class... P, class... A>
void launch(cudaStream_t stream, const char* name, const Grid& grid, void (*kernel)(P...), A... a) {
  kernel<<<grid.blocks, grid.threads, grid.shared, stream>>>(static_cast<P>(a)...);
  check_cuda(cudaGetLastError(), name);
}

template <class... P>
void allow_shared(const char* name, void (*kernel)(P...), size_t bytes) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             name);
}

template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ uint4 dst_dynamic_shared[];
  return reinterpret_cast<T*>(dst_dynamic_shared);
}

__device__ __forceinline__ void sync_group(int id, int threads) {
  asm volatile("bar.sync %0, %1;\n" : : "r"(id), "r"(threads) : "memory");
}

// *to = value in accesses of 16 bytes (8 or 4 for smaller structs). The compiler alone sometimes splits them.
template <class P>
__device__ __forceinline__ void store_whole(P* to, const P& value) {
  using Word = std::conditional_t<sizeof(P) % 16 == 0, uint4,
                                  std::conditional_t<sizeof(P) == 8, uint2, unsigned>>;
  static_assert(sizeof(P) % sizeof(Word) == 0 && alignof(P) >= alignof(Word));
  Word words[sizeof(P) / sizeof(Word)];
  memcpy(words, &value, sizeof(P));
#pragma unroll
  for (size_t i = 0; i < sizeof(P) / sizeof(Word); ++i)
    __stwb(reinterpret_cast<Word*>(to) + i, words[i]);
}

// The loads stay in the order of the program and before what follows them: left to itself, the compiler often moves
// each load to the first use of its value, and a thread then waits for one load after the other.
__device__ __forceinline__ uint4 load_words(const void* from, bool present) {
  uint4 words;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
      "mov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"
      "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}\n"
      : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)
      : "l"(__cvta_generic_to_global(from)), "r"(static_cast<unsigned>(present))
      : "memory");
  return words;
}
__device__ __forceinline__ uint4 load_words(const void* from) {
  uint4 words;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return words;
}

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

template <class T>
__device__ __forceinline__ T narrow(float x) {
  if constexpr (std::is_same_v<T, bf16>)
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  else if constexpr (std::is_same_v<T, f16>)
    return {__half_as_ushort(__float2half_rn(x))};
  else
    return x;
}
__device__ __forceinline__ float widen(float x) {
  return x;
}
__device__ __forceinline__ float widen(bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ __forceinline__ float widen(f16 x) {
  return __half2float(__ushort_as_half(x.bits));
}

}  // namespace dstrain::cuda
