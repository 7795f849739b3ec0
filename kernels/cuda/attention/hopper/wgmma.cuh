// Products of a warpgroup (four warps) by wgmma, m64n64k16 with operands of 16 bits and f32 sums, on panels in shared memory.
//
// A panel has 64 rows of 64 elements, 128 bytes a row. A chunk of 8 elements of row r is stored at position
// chunk ^ (r % 8), as in tiles.cuh and as the tensor memory copies of bulk_copy.cuh write it with a swizzle of 128 bytes. Its
// address is a multiple of 1024. A tile of wider rows is a panel for every 64 columns.
//
// Sums have the layout of mma.cuh's C fragments, 8 columns each: warp w of the group has rows 16 w to 16 w + 15. The A
// operand in registers has that of its A fragments.
#pragma once

#include "kernels/cuda/attention/hopper/instructions.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kPanelRows = 64;
inline constexpr int kPanelSize = kPanelRows * 64;  // elements
inline constexpr int kPanelBytes = 2 * kPanelSize;
inline constexpr int kGroupThreads = 128;

// The descriptor of a panel, as the PTX ISA lays it out: swizzle of 128 bytes, 1024 bytes from 8 rows to the next 8.
__device__ __forceinline__ uint64_t panel_descriptor(const void* panel) {
  constexpr uint64_t kEightRows = 1024 >> 4;
  return uint64_t{1} << 62 | kEightRows << 32 | kEightRows << 16 |
         (shared_address(panel) & 0x3ffff) >> 4;
}

// Issues scores = left right^T, rows of 64 kPanels elements, as one group of products.
template <int kPanels, class T>
__device__ __forceinline__ void issue_scores(float (&scores)[8][4], const T* left, const T* right) {
  begin_products();
#pragma unroll
  for (int p = 0; p < kPanels; ++p) {
    const uint64_t a = panel_descriptor(left + p * kPanelSize);
    const uint64_t b = panel_descriptor(right + p * kPanelSize);
#pragma unroll
    for (int step = 0; step < 4; ++step)  // 16 columns are 32 bytes
      wgmma<T>(scores, a + 2 * step, b + 2 * step, p + step > 0);
  }
  commit_products();
}

// Issues sums += weights (64 x 64) right (64 rows of 64 kPanels elements) as one group of products.
template <int kPanels, class T>
__device__ __forceinline__ void issue_product(float (&sums)[8 * kPanels][4],
                                              const uint32_t (&weights)[4][4], const T* right) {
  begin_products();
#pragma unroll
  for (int step = 0; step < 4; ++step) {  // 16 rows are 2048 bytes
    wgmma<T, 0>(sums, weights[step], panel_descriptor(right) + 128 * step);
    if constexpr (kPanels == 2)
      wgmma<T, 8>(sums, weights[step], panel_descriptor(right + kPanelSize) + 128 * step);
  }
  commit_products();
}

}  // namespace dstrain::DSTRAIN_BACKEND
