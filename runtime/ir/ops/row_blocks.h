// How sums over rows (gradients of biases and norm weights) are divided. Each block of rows is summed on its
// own, then the blocks' sums are added in order. The blocks depend on the number of rows alone, so the result
// does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain {

// The division of `rows` rows into `count` blocks. A block has kMultiple rows, or a multiple of it if there would be over
// kMost blocks.
struct RowBlocks {
  static constexpr int64_t kMultiple = 64, kMost = 256;
  int64_t rows, block, count;

  explicit RowBlocks(int64_t r)
      : RowBlocks(r, std::max<int64_t>(1, (r + kMultiple * kMost - 1) / (kMultiple * kMost)) *
                         kMultiple) {}
  // Divides a piece of more rows into blocks of `b` rows, which are theirs.
  RowBlocks(int64_t r, int64_t b) : rows(r), block(b), count((r + b - 1) / b) {}
  constexpr int64_t begin(int64_t b) const { return b * block; }
  constexpr int64_t end(int64_t b) const { return std::min(rows, (b + 1) * block); }
};

}  // namespace dstrain
