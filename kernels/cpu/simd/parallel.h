// Splitting work over OpenMP threads. Each piece is independent of how many threads there are, so
// results are too; where a sum crosses pieces, the kernel fixes the pieces itself.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain::simd {

// Calls body(begin, end) on contiguous ranges that cover [0, n), one per thread; boundaries are
// multiples of `grain`, and a thread that would get less than a grain is not started.
template <class Body>
void parallel_ranges(int threads, int64_t n, int64_t grain, const Body& body) {
  const int64_t pieces = (n + grain - 1) / grain;
  const int64_t used = std::min<int64_t>(threads, pieces);
  if (used <= 1) {
    if (n > 0) body(int64_t{0}, n);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(used))
  for (int64_t t = 0; t < used; ++t)
    body(pieces * t / used * grain, std::min(n, pieces * (t + 1) / used * grain));
}

// Rows of `row_bytes` a thread should at least have: starting one costs as much as moving 32 KiB.
inline int64_t row_grain(int64_t row_bytes) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, row_bytes));
}

// The same for the elements of a flat operand; a multiple of every pack and cache line.
inline constexpr int64_t kFlatGrain = 8192;

}  // namespace dstrain::simd
