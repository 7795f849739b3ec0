// Loops that only move memory, to compare memory-bound kernels with. They are compiled for several instruction sets;
// the best one is chosen at run time.
#pragma once

#include <cstdint>

namespace dstrain {

// Has the memory traffic of an Adam step: reads grad, p, m, v and writes p, m, v (28 bytes per element), and writes
// `copy` (2 bytes) unless it is null.
void adam_traffic(const float* grad, float* p, float* m, float* v, uint16_t* copy, int64_t n,
                  int threads);

// Bytes of operands that are only read, only written, and read and written. A line that is written comes into the
// caches first, as with the kernels' stores; that does not count as read.
struct Traffic {
  int64_t read, written, updated;
  int64_t bytes() const { return read + written + 2 * updated; }
};

// Reads `from`, writes `to` and adds 1 to each word of `changed`, all in step. They have the bytes of `traffic`,
// rounded up to pages.
void flat_traffic(const Traffic& traffic, const void* from, void* to, void* changed, int threads);

}  // namespace dstrain
