#include "benchmarks/kernels/traffic.h"

#include <cstring>

#include "kernels/cpu/memory_bound/parallel.h"

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

CLONES void copy_words(const uint64_t* __restrict from, uint64_t* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] + 1;
}

CLONES uint64_t sum_words(const uint64_t* __restrict from, int64_t n) {
  uint64_t sum[32] = {};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (int64_t k = 0; k < 32; ++k) sum[k] += from[i + k];
  for (; i < n; ++i) sum[0] += from[i];
  for (int64_t k = 1; k < 32; ++k) sum[0] += sum[k];
  return sum[0];
}

CLONES void write_words(uint64_t* __restrict to, uint64_t first, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = first + static_cast<uint64_t>(i);
}

CLONES void change_words(uint64_t* __restrict x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += 1;
}

// Words [begin, end) of one of `slices` slices of an operand.
struct Words {
  int64_t begin, end;
  Words(int64_t bytes, int64_t slice, int64_t slices)
      : begin(bytes / 8 * slice / slices), end(bytes / 8 * (slice + 1) / slices) {}
  int64_t count() const { return end - begin; }
};

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

void flat_traffic(const Traffic& traffic, const void* from, void* to, void* changed, int threads) {
  constexpr int64_t kSlice = 65536;  // bytes
  const int64_t slices = traffic.bytes() / kSlice + 1;
  simd::parallel_ranges(threads, slices, 8, [&](int64_t begin, int64_t end) {
    const auto* reads = static_cast<const uint64_t*>(from);
    auto *writes = static_cast<uint64_t*>(to), *both = static_cast<uint64_t*>(changed);
    uint64_t sum = 0;
    for (int64_t s = begin; s < end; ++s) {
      const Words read(traffic.read, s, slices), written(traffic.written, s, slices);
      const Words updated(traffic.updated, s, slices);
      const int64_t copied = std::min(read.count(), written.count());
      copy_words(reads + read.begin, writes + written.begin, copied);
      sum += sum_words(reads + read.begin + copied, read.count() - copied);
      write_words(writes + written.begin + copied, sum, written.count() - copied);
      change_words(both + updated.begin, updated.count());
    }
    // The sum must reach memory, or the compiler may leave out what makes it.
    uint64_t* const sink = traffic.written > 0
                               ? writes + Words(traffic.written, begin, slices).begin
                               : both + Words(traffic.updated, begin, slices).begin;
    if (traffic.written + traffic.updated > 0) std::memcpy(sink, &sum, sizeof sum);
  });
}

}  // namespace dstrain
