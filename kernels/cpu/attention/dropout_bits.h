// Rows of dropout mask bits, as every body of attention reads them. Stands on philox.h.
// Invariant: a set bit is a kept weight; the bits depend on (key, sample, element) alone.
#pragma once

#include <cstdint>

#include "runtime/core/philox.h"

namespace dstrain::attention {

inline constexpr int64_t kMaxMaskColumns = 1024;

// One request: `rows` rows of `columns` bits, bit n of row r for element
// first_element + r * row_stride + n. Whole 64-bit words are written, two vectors of generator
// blocks at a time, so a row needs mask_words(columns) words.
struct MaskRows {
  PhiloxKey key;
  uint64_t sample;
  uint32_t threshold;  // at least 1
  uint64_t first_element;
  int64_t row_stride;  // elements
  int64_t rows, columns;
  uint64_t* bits;
  int64_t bits_stride;  // words from one row to the next, at least mask_words(columns)
};

constexpr int64_t mask_words(int64_t columns) {
  return (columns + 127) / 128 * 2;
}

}  // namespace dstrain::attention
