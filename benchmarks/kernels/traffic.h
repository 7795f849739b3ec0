// Loops that only move memory, to compare memory-bound kernels with. They are compiled for several instruction sets;
// the best one is chosen at run time.
#pragma once

#include <cstdint>

namespace dstrain {

// Has the memory traffic of an Adam step: reads grad, p, m, v and writes p, m, v (28 bytes per element), and writes
// `copy` (2 bytes) unless it is null.
void adam_traffic(const float* grad, float* p, float* m, float* v, uint16_t* copy, int64_t n,
                  int threads);

// to = from: reads `bytes` bytes and writes as many.
void copy_traffic(const char* from, char* to, int64_t bytes, int threads);

}  // namespace dstrain
