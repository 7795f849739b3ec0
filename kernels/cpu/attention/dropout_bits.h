// Dropout masks of attention weights as rows of bits: a set bit keeps the weight.
// Invariant: a bit depends on (key, sample, element) alone.
#pragma once

#include <cstdint>

#include "runtime/core/philox.h"

namespace dstrain::attention {

inline constexpr int64_t kMaxMaskColumns = 1024;

// A request for `rows` rows of `columns` bits; bit n of row r belongs to element
// first_element + r * row_stride + n. Two vectors of Philox blocks are written at a time, so a row needs
// mask_words(columns) 64-bit words.
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
