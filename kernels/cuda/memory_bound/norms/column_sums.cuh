// Sums over rows in two stages: blocks of rows (runtime/ir/ops/row_blocks.h), then blocks in order.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace dstrain::DSTRAIN_BACKEND {

// The rows of a block are added in so many chains: row i belongs to chain i % kChains, and the chains' sums are added
// in order.
inline constexpr int kChains = 8;

// The second stage: the sums of blocks, partial[block][kind][column] in f32, and where their sums go.
struct BlockSums {
  const float* partial;
  int64_t blocks, c;
  float *plain, *normal;  // results of kind 0 and 1
  bool add;               // to what is there
};

// Launches it. `kinds`: 1 or 2.
void add_block_sums(const LaunchContext& context, const char* name, int kinds,
                    const BlockSums& sums);

}  // namespace dstrain::DSTRAIN_BACKEND
