// Divides work among threads. Elements are computed independently of each other, so the number of threads
// changes no result. A kernel whose sums go across threads must divide them into fixed blocks itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/core/threads/parts.h"

namespace dstrain::simd {

// Calls run(begin, end) for contiguous ranges that cover [0, n), one range per thread. Boundaries are multiples of
// `grain`, and no more threads are used than there are grains.
template <class Run>
void parallel_ranges(int threads, int64_t n, int64_t grain, const Run& run) {
  const int64_t pieces = (n + grain - 1) / grain;
  const int64_t used = std::min<int64_t>(threads, pieces);
  if (used <= 1) {
    if (n > 0) run(int64_t{0}, n);
    return;
  }
  run_parts(used, [&](int64_t t) {
    run(pieces * t / used * grain, std::min(n, pieces * (t + 1) / used * grain));
  });
}

// Calls run(part, begin, end) for ranges that cover [0, n) of each of `parts` parts, divided among threads as one
// range.
template <class Run>
void for_parts(int threads, int64_t parts, int64_t n, int64_t grain, const Run& run) {
  parallel_ranges(threads, parts * n, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t first = begin % n, here = std::min(n - first, end - begin);
      run(begin / n, first, first + here);
      begin += here;
    }
  });
}

// Returns the grain for rows of `row_bytes`: starting a thread costs about as much as moving 32 KiB.
inline int64_t row_grain(int64_t row_bytes) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, row_bytes));
}

// The grain in elements of a flat operand; a multiple of a pack and of a cache line.
inline constexpr int64_t kFlatGrain = 8192;

}  // namespace dstrain::simd
