#include "benchmarks/attention/probes.h"

#include <immintrin.h>
#include <time.h>

#include <numeric>
#include <vector>

#include "runtime/core/isa/isa.h"
#include "runtime/core/threads/parts.h"

namespace dstrain::bench {
namespace {

constexpr int kAccumulators = 12, kMultiplyAddLoops = 200000;
constexpr int kTiles = 4, kTileLoops = 40000;
constexpr int kDots = 16, kDotLoops = 150000;

// Twelve independent chains hide the latency of the two multiply-add units. The empty asm keeps the compiler from
// removing the loop, whose result is not used.
__attribute__((target("avx512f"))) void multiply_adds_512() {
  __m512 sum[kAccumulators], x = _mm512_set1_ps(0.5f);
  for (auto& s : sum) s = _mm512_set1_ps(1.0f);
  for (int i = 0; i < kMultiplyAddLoops; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kAccumulators; ++k) sum[k] = _mm512_fmadd_ps(sum[k], x, x);
  }
  for (auto& s : sum) asm volatile("" : : "v"(s));
}

__attribute__((target("avx2,fma"))) void multiply_adds_256() {
  __m256 sum[kAccumulators], x = _mm256_set1_ps(0.5f);
  for (auto& s : sum) s = _mm256_set1_ps(1.0f);
  for (int i = 0; i < kMultiplyAddLoops; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kAccumulators; ++k) sum[k] = _mm256_fmadd_ps(sum[k], x, x);
  }
  for (auto& s : sum) asm volatile("" : : "x"(s));
}

// Sixteen chains, as many sums as a product of vectors keeps.
__attribute__((target("avx512f,avx512bf16"))) void dot_products() {
  __m512 sum[kDots];
  const __m512bh pairs = (__m512bh)_mm512_set1_epi32(0x3f003f00);  // of 0.5
  for (auto& s : sum) s = _mm512_setzero_ps();
  for (int i = 0; i < kDotLoops; ++i) {
#pragma GCC unroll 16
    for (int k = 0; k < kDots; ++k) sum[k] = _mm512_dpbf16_ps(sum[k], pairs, pairs);
  }
  for (auto& s : sum) asm volatile("" : : "v"(s));
}

struct alignas(64) TileConfig {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

__attribute__((target("amx-tile,amx-bf16"))) void tile_products() {
  const TileConfig config;
  asm volatile("" : : "r"(&config) : "memory");  // GCC 12 does not know that loadconfig reads it
  _tile_loadconfig(&config);
  for (int i = 0; i < kTileLoops; ++i) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
  }
  _tile_release();
}

double seconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Returns the sum over threads of work / the thread's CPU time, so that the time of other programs does not count.
double rate(int threads, double flops, void (*work)()) {
  std::vector<double> rates(static_cast<size_t>(threads));
  run_parts(threads, [&](int64_t part) {
    const double start = thread_seconds();
    work();
    rates[static_cast<size_t>(part)] = flops / (thread_seconds() - start);
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace

double thread_seconds() {
  return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}
double process_seconds() {
  return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}
double wall_seconds() {
  return seconds_of(CLOCK_MONOTONIC);
}

double multiply_add_rate(int threads) {
  const bool wide = max_isa() >= Isa::avx512;
  const double flops = 2.0 * (wide ? 16 : 8) * kAccumulators * kMultiplyAddLoops;
  return rate(threads, flops, wide ? multiply_adds_512 : multiply_adds_256);
}

double bf16_rate(int threads) {
  if (max_isa() == Isa::amx)
    return rate(threads, 2.0 * 16 * 16 * 32 * kTiles * kTileLoops, tile_products);
  if (max_isa() == Isa::avx512_bf16)
    return rate(threads, 4.0 * 16 * kDots * kDotLoops, dot_products);
  return multiply_add_rate(threads);
}

}  // namespace dstrain::bench
