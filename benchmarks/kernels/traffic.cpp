#include "benchmarks/kernels/traffic.h"

#include <cstring>

#include "kernels/cpu/simd/parallel.h"

#define CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))

namespace dstrain {
namespace {

CLONES void adam_range(const float* __restrict grad, float* __restrict p, float* __restrict m,
                       float* __restrict v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    p[i] += grad[i];
    m[i] += grad[i];
    v[i] += grad[i];
  }
}

CLONES void adam_copy_range(const float* __restrict grad, float* __restrict p, float* __restrict m,
                            float* __restrict v, uint16_t* __restrict copy, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float next = p[i] + grad[i];
    p[i] = next;
    m[i] += grad[i];
    v[i] += grad[i];
    uint32_t bits;
    std::memcpy(&bits, &next, sizeof(bits));
    copy[i] = static_cast<uint16_t>(bits >> 16);
  }
}

}  // namespace

void adam_traffic(const float* grad, float* p, float* m, float* v, uint16_t* copy, int64_t n,
                  int threads) {
  simd::parallel_ranges(threads, n, simd::kFlatGrain, [&](int64_t begin, int64_t end) {
    if (copy)
      adam_copy_range(grad + begin, p + begin, m + begin, v + begin, copy + begin, end - begin);
    else
      adam_range(grad + begin, p + begin, m + begin, v + begin, end - begin);
  });
}

void copy_traffic(const char* from, char* to, int64_t bytes, int threads) {
  simd::parallel_ranges(threads, bytes, 65536, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace dstrain
