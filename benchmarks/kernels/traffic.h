// Loops that move memory and compute next to nothing: what kernels limited by memory are measured
// against. Compiled for several instruction sets, the best one chosen when they run.
#pragma once

#include <cstdint>

namespace dstrain {

// The traffic of an Adam step: reads grad, p, m, v and writes p, m, v (28 bytes an element), and where
// copy is not null 2 bytes more.
void adam_traffic(const float* grad, float* p, float* m, float* v, uint16_t* copy, int64_t n,
                  int threads);

// to = from: reads and writes `bytes` each.
void copy_traffic(const char* from, char* to, int64_t bytes, int threads);

}  // namespace dstrain
