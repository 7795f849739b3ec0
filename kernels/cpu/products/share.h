// How the result of a product is divided among threads. Rows and columns are counted in panels.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain {

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A range of rows or columns.
struct Part {
  int64_t first, count;
};

// Returns part i of n nearly equal parts of [0, size).
constexpr Part part_of(int64_t size, int64_t i, int64_t n) {
  const int64_t first = size * i / n;
  return {first, size * (i + 1) / n - first};
}

// A thread's share: its rows, in stripes, by its columns, in pieces. An item is a piece of a stripe, which any thread may
// compute (run_lists). The items of a stripe follow each other, so that its rows are packed once.
struct Share {
  Part rows, columns;
  int64_t stripe, piece;  // rows of a stripe, and the most columns of a piece

  int64_t pieces() const { return ceil_div(columns.count, piece); }
  int64_t items() const { return ceil_div(rows.count, stripe) * pieces(); }
  Part stripe_of(int64_t item) const {
    const int64_t first = item / pieces() * stripe;
    return {rows.first + first, std::min(stripe, rows.count - first)};
  }
  Part piece_of(int64_t item) const {
    const Part piece_of_share = part_of(columns.count, item % pieces(), pieces());
    return {columns.first + piece_of_share.first, piece_of_share.count};
  }
};

}  // namespace dstrain
