// The limit of NCCL's blocks that a communicator is given, by which its memory is reserved too.
#pragma once

namespace dstrain {

// Returns the most blocks of a GPU that a communicator of so many ranks occupies, which are NCCL's channels. Those of a
// pipeline's messages run at the same time as sums: with NCCL's own limit (up to 64 each) their kernels fill the GPU and wait
// for each other. NCCL_MAX_CTAS has precedence.
constexpr int most_nccl_blocks(int ranks) {
  return ranks == 2 ? 8 : 16;
}

}  // namespace dstrain
