// Values that go from one place to another as they are, or rounded, or added to what is there.
#pragma once

#include <cstdint>

#include "runtime/core/dtype.h"

namespace dstrain::simd {

// A row of values of a floating-point dtype.
struct ValueRow {
  DType dtype{};
  void* data = nullptr;
};

// Writes n values to `to`, rounded to its dtype, or with `accumulate` adds them in f32 and rounds the sum. Values that
// neither change their dtype nor are added keep their bits. The rows have nothing in common.
void move_values(ValueRow from, ValueRow to, int64_t n, bool accumulate);

}  // namespace dstrain::simd
