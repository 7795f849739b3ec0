// Products of a warpgroup (four warps) by wgmma, m64n64k16 with bf16 operands and f32 sums, on panels in shared memory.
//
// A panel has 64 rows of 64 elements, 128 bytes a row. A chunk of 8 elements of row r is stored at position
// chunk ^ (r % 8), as in tiles.cuh and as the tensor memory copies of bulk_copy.cuh write it with a swizzle of 128 bytes. Its
// address is a multiple of 1024. A tile of wider rows is a panel for every 64 columns.
//
// Sums have the layout of mma.cuh's C fragments, 8 columns each: warp w of the group has rows 16 w to 16 w + 15. The A
// operand in registers has that of its A fragments.
#pragma once

#include "kernels/cuda/attention/mma.cuh"

namespace dstrain::cuda {

inline constexpr int kPanelRows = 64;
inline constexpr int kPanelSize = kPanelRows * 64;  // elements
inline constexpr int kPanelBytes = 2 * kPanelSize;
inline constexpr int kGroupThreads = 128;

// The descriptor of a panel, as the PTX ISA lays it out: swizzle of 128 bytes, 1024 bytes from 8 rows to the next 8.
__device__ __forceinline__ uint64_t panel_descriptor(const bf16* panel) {
  constexpr uint64_t kEightRows = 1024 >> 4;
  return uint64_t{1} << 62 | kEightRows << 32 | kEightRows << 16 |
         (shared_address(panel) & 0x3ffff) >> 4;
}

// Orders the warpgroup's accesses to registers before the products that follow.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
// Ends a group of products, which run beside what follows.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Returns when at most kPending groups of products are not done. Their sums must pass finished() before they are used.
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}
// Keeps the compiler from reading the sums before the wait in front of this.
template <int kTiles>
__device__ __forceinline__ void finished(float (&sums)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[n][i])::"memory");
}

#define DSTRAIN_SUMS(n)                                                         \
  "+f"(sums[kFrom + n][0]), "+f"(sums[kFrom + n][1]), "+f"(sums[kFrom + n][2]), \
      "+f"(sums[kFrom + n][3])
#define DSTRAIN_ALL_SUMS                                                               \
  DSTRAIN_SUMS(0), DSTRAIN_SUMS(1), DSTRAIN_SUMS(2), DSTRAIN_SUMS(3), DSTRAIN_SUMS(4), \
      DSTRAIN_SUMS(5), DSTRAIN_SUMS(6), DSTRAIN_SUMS(7)
#define DSTRAIN_SUM_NAMES                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// sums (+)= a b^T over 16 columns of both panels; replaces the sums unless `add`.
template <int kFrom = 0, int kTiles>
__device__ __forceinline__ void wgmma(float (&sums)[kTiles][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " DSTRAIN_SUM_NAMES
      ", %32, %33, p, 1, 1, 0, 0;\n}\n"
      : DSTRAIN_ALL_SUMS
      : "l"(a), "l"(b), "r"(static_cast<uint32_t>(add)));
}

// sums[kFrom ...] += a b over 16 rows of the panel b.
template <int kFrom = 0, int kTiles>
__device__ __forceinline__ void wgmma(float (&sums)[kTiles][4], const uint32_t (&a)[4],
                                      uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " DSTRAIN_SUM_NAMES
               ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
               : DSTRAIN_ALL_SUMS
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef DSTRAIN_SUMS
#undef DSTRAIN_ALL_SUMS
#undef DSTRAIN_SUM_NAMES

// Issues scores = left right^T, rows of 64 kPanels elements, as one group of products.
template <int kPanels>
__device__ __forceinline__ void issue_scores(float (&scores)[8][4], const bf16* left,
                                             const bf16* right) {
  begin_products();
#pragma unroll
  for (int p = 0; p < kPanels; ++p) {
    const uint64_t a = panel_descriptor(left + p * kPanelSize);
    const uint64_t b = panel_descriptor(right + p * kPanelSize);
#pragma unroll
    for (int step = 0; step < 4; ++step)  // 16 columns are 32 bytes
      wgmma(scores, a + 2 * step, b + 2 * step, p + step > 0);
  }
  commit_products();
}

// Issues sums += weights (64 x 64) right (64 rows of 64 kPanels elements) as one group of products.
template <int kPanels>
__device__ __forceinline__ void issue_product(float (&sums)[8 * kPanels][4],
                                              const uint32_t (&weights)[4][4], const bf16* right) {
  begin_products();
#pragma unroll
  for (int step = 0; step < 4; ++step) {  // 16 rows are 2048 bytes
    wgmma<0>(sums, weights[step], panel_descriptor(right) + 128 * step);
    if constexpr (kPanels == 2)
      wgmma<8>(sums, weights[step], panel_descriptor(right + kPanelSize) + 128 * step);
  }
  commit_products();
}

}  // namespace dstrain::cuda
