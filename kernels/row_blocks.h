// Sums over rows (bias and norm-weight gradients) in two stages of fixed shape, so that the result
// does not depend on threads: blocks of rows are summed apart, then the blocks' sums in order.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain {

// A function of the number of rows alone: blocks of 64 rows, or at most 256 longer blocks.
struct RowBlocks {
  int64_t rows, block, count;

  explicit RowBlocks(int64_t r)
      : rows(r), block(std::max<int64_t>(64, (r + 255) / 256)), count((r + block - 1) / block) {}
  int64_t begin(int64_t b) const { return b * block; }
  int64_t end(int64_t b) const { return std::min(rows, (b + 1) * block); }
};

}  // namespace dstrain
