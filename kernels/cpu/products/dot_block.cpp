#include "kernels/cpu/products/dot_block.h"

#include <immintrin.h>

#include <cstring>

#define DST_BF16 __attribute__((target("avx512f,avx512bf16")))

namespace dstrain {
namespace {

constexpr int kRows = 8;    // rows of A; with the 32 columns of B their sums take 16 registers
constexpr int kLine = 64;   // bytes: the 16 pairs of a row of A, or a pair of 16 columns of B
constexpr int kPairs = 16;  // pairs in a block of k
constexpr int kStrips = kPanel / kRows;

DST_BF16 inline __m512 add_dots(__m512 sums, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sums, (__m512bh)a, (__m512bh)b);
}

// Returns one pair of A in all lanes.
DST_BF16 inline __m512i spread(const char* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

// Prefetches the lines that one strip of eight rows has to fetch in one block of k.
DST_BF16 inline void fetch_lines(Fetch& fetch) {
  if (fetch.a != nullptr) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) _mm_prefetch(fetch.a + i * fetch.a_row, _MM_HINT_T1);
    fetch.a += fetch.a_block;
  }
  for (int64_t line = 0; line < fetch.b_lines; ++line, fetch.b += kLine) {
    _mm_prefetch(fetch.b, _MM_HINT_T1);
  }
  for (int64_t row = 0; row < fetch.out_rows; ++row, fetch.out += fetch.out_stride) {
    for (int64_t at = 0; at < fetch.out_bytes; at += kLine) __builtin_prefetch(fetch.out + at, 1);
  }
}

// Multiplies eight rows of the block. B is in the first-level cache. Prefetches A's next block of k, and after
// the last one the beginning of `next`, the next eight rows.
DST_BF16 inline void multiply_strip(const char* a, const char* b, int64_t blocks, const float* from,
                                    float* to, const char* next, Fetch& fetch) {
  __m512 left[kRows], right[kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    left[i] = from != nullptr ? _mm512_load_ps(from + i * 16) : _mm512_setzero_ps();
    right[i] = from != nullptr ? _mm512_load_ps(from + kTileFloats + i * 16) : _mm512_setzero_ps();
  }
  for (int64_t block = 0; block < blocks; ++block, a += kBlockBytes, b += kBlockBytes) {
    const char* a_next = block + 1 < blocks ? a + kBlockBytes : next;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) _mm_prefetch(a_next + i * kLine, _MM_HINT_T0);
    fetch_lines(fetch);
#pragma GCC unroll 16
    for (int pair = 0; pair < kPairs; ++pair) {
      const __m512i b_left = _mm512_load_si512(b + pair * kLine);
      const __m512i b_right = _mm512_load_si512(b + kTileBytes + pair * kLine);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const __m512i both = spread(a + i * kLine + pair * 4);
        left[i] = add_dots(left[i], both, b_left);
        right[i] = add_dots(right[i], both, b_right);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    _mm512_store_ps(to + i * 16, left[i]);
    _mm512_store_ps(to + kTileFloats + i * 16, right[i]);
  }
}

DST_BF16 void multiply(const char* a, const char* b, int64_t blocks, int64_t rows,
                       const float* from, float* to, Fetch fetch) {
  const int64_t b_lines = fetch.b_lines;
  const char* source = fetch.a;
  fetch.out_rows = (fetch.out_rows + kStrips - 1) / kStrips;
  for (int strip = 0; strip * kRows < rows; ++strip) {
    fetch.b_lines = (b_lines + kStrips - 1 - strip) / kStrips;
    const int64_t at = strip / 2 * 2 * kTileFloats + strip % 2 * kRows * 16;
    if (source != nullptr) fetch.a = source + strip * kRows * fetch.a_row;
    const char* first = a + strip * kRows * kLine;
    multiply_strip(first, b, blocks, from != nullptr ? from + at : nullptr, to + at,
                   first + kRows * kLine, fetch);
  }
}

void no_setup() {}

}  // namespace

const BlockKernel& dot_block() {
  static constexpr BlockKernel kernel{.multiply = multiply,
                                      .begin = no_setup,
                                      .end = no_setup,
                                      .part_blocks = 8,  // 16 KiB
                                      .a_bytes = 768 * 1024,
                                      .b_bytes = 256 * 1024,
                                      .b_past_caches = true};
  return kernel;
}

}  // namespace dstrain
