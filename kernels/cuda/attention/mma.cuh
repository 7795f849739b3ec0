// The special instructions of attention, one function each: mma.sync m16n8k16 with f32 sums, ldmatrix, cp.async.
// The rest of attention is ordinary C++. The emulated device uses kernels/cuda/emulation/mma.h instead, with
// the same names and the same layout of fragments.
//
// Fragments, as the PTX ISA lays them out; lane = 4 g + q:
//   A (16 x 16)  a[0]: row g, columns 2q, 2q+1; a[1]: row g+8; a[2]: row g, columns 2q+8, 2q+9;
//                a[3]: row g+8, columns 2q+8, 2q+9        (two 16-bit elements, the lower column in the low half)
//   B (16 x 8)   b0: rows 2q, 2q+1 of column g; b1: rows 2q+8, 2q+9
//   C (16 x 8)   c[0], c[1]: row g, columns 2q, 2q+1; c[2], c[3]: row g+8
//   ldmatrix     four 8 x 8 matrices; lane l gives the address of row l%8 of matrix l/8; register m of a lane
//                gets columns 2q, 2q+1 of row g of matrix m, or with trans of its transpose
#pragma once

#include "kernels/cuda/launch.cuh"
#include "runtime/core/dtype.h"

#ifndef __CUDACC__
#include "kernels/cuda/emulation/mma.h"
#else

namespace dstrain::cuda {

// c += a b, for T = bf16 or f16.
template <class T>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// `row` points to 8 16-bit elements in shared memory, 16-byte aligned.
__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

__device__ __forceinline__ void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

// Starts to copy 16 aligned bytes into shared memory. Unless `present`, sets them to zero instead; `from` must be
// a valid address all the same.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
               "l"(from), "r"(present ? 16 : 0));
}

// Returns when all copies of this thread are done.
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_all;\n" ::: "memory");
}

// Rounds two floats to nearest even and packs them, `low` in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t r;
  if constexpr (std::is_same_v<T, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
  }
  return r;
}

}  // namespace dstrain::cuda

#endif
