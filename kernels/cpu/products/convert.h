// Rows of a matrix between 16 bits and f32, for products that run in f32. Widening is exact;
// narrowing rounds to nearest even, as runtime/core/dtype.h does, whatever the instruction set.
#pragma once

#include <cstdint>

#include "runtime/core/dtype.h"

namespace dstrain {

// A block of a row-major matrix in memory: `data` is its first element, `stride` elements a row.
struct Block {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t stride = 0;
};

// to[r][c] = from[r][c] in f32; `from` holds bf16 or f16.
void widen(const Block& from, int64_t rows, int64_t columns, float* to, int64_t to_stride,
           int threads);

// to[r][c] = activation(from[r][c] + bias[c]), rounded to to.dtype (f32 included). `bias` is of
// to.dtype, or null. `to` may be `from` itself where it is f32.
void finish(const float* from, int64_t from_stride, int64_t rows, int64_t columns, const void* bias,
            bool relu, const Block& to, int threads);

}  // namespace dstrain
