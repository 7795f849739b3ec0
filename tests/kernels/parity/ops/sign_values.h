// Values of the numpy models of tests/golden/signs.
#pragma once

#include <cmath>

#include "tests/kernels/parity/ops/flat_update.h"

namespace dstrain::parity {

// Returns the values of tests/golden/signs/make_signs.py; with `zeros` every third one is 0.
inline Values sign_values(int64_t rank, int64_t step, int64_t n, bool zeros) {
  Values x;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t whole = ((i + 1) * 7919 + rank * 104729 + step * 1299709) % 20011 - 10005;
    const int power = static_cast<int>(8 + (i / 64 + rank) % 7);
    x.push_back(zeros && i % 3 == 0 ? 0 : std::ldexp(static_cast<double>(whole), -power));
  }
  return x;
}

}  // namespace dstrain::parity
