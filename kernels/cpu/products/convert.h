// Converts rows of a matrix between 16 bits and f32, for products that run in f32. Widening is exact; narrowing
// rounds to nearest even, as runtime/core/dtype.h does, on every instruction set.
#pragma once

#include <cstdint>

#include "runtime/core/dtype.h"

namespace dstrain {

// A block of a row-major matrix: `data` is its first element, rows are `stride` elements apart.
struct Block {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t stride = 0;
};

// to[r][c] = from[r][c], widened from bf16 or f16 to f32.
void widen(const Block& from, int64_t rows, int64_t columns, float* to, int64_t to_stride,
           int threads);

// to[r][c] = activation(from[r][c] + bias[c]), rounded to to.dtype, which may be f32. `bias` has to.dtype, or is
// null. An f32 `to` may be `from` itself.
void finish(const float* from, int64_t from_stride, int64_t rows, int64_t columns, const void* bias,
            bool relu, const Block& to, int threads);

}  // namespace dstrain
