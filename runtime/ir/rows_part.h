// RowsPart: which rows of a micro-batch the rows of an operand are.
#pragma once

#include <cstdint>

namespace dstrain {

// Consecutive rows of the B*T rows of a micro-batch. They may begin and end within a sample.
struct RowsPart {
  int64_t first = 0;  // the row of the micro-batch that row 0 is
  int64_t all = 0;    // rows of the micro-batch; 0: the operand has all of them
  bool operator==(const RowsPart&) const = default;
};

// Returns whether `rows` rows are such a part of samples of `seq_len` rows.
constexpr bool divides_samples(const RowsPart& part, int64_t rows, int64_t seq_len) {
  const int64_t all = part.all == 0 ? rows : part.all;
  return seq_len > 0 && all % seq_len == 0 && part.first >= 0 && part.first + rows <= all;
}

}  // namespace dstrain
