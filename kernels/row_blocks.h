// How sums over rows (gradients of biases and norm weights) are divided. Each block of rows is summed on its
// own, then the blocks' sums are added in order. The blocks depend on the number of rows alone, so the result
// does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain {

// The division of `rows` rows into `count` blocks. A block has 64 rows, or more if there would be over 256
// blocks.
struct RowBlocks {
  int64_t rows, block, count;

  explicit RowBlocks(int64_t r)
      : rows(r), block(std::max<int64_t>(64, (r + 255) / 256)), count((r + block - 1) / block) {}
  constexpr int64_t begin(int64_t b) const { return b * block; }
  constexpr int64_t end(int64_t b) const { return std::min(rows, (b + 1) * block); }
};

}  // namespace dstrain
