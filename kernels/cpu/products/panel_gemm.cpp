#include "kernels/cpu/products/panel_gemm.h"

#include <immintrin.h>

#include <algorithm>

#define DST_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

namespace dstrain {
namespace {

DST_AVX512 inline __m512 widen16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Up to sixteen columns of a row: the mask of those inside the matrix, and their bias.
struct Columns {
  __mmask16 mask = 0;
  __m512 bias{};
};

DST_AVX512 inline Columns columns_at(int64_t column, const Epilogue& e) {
  const int64_t count = std::clamp<int64_t>(e.n - column, 0, 16);
  Columns c;
  c.mask = static_cast<__mmask16>((1u << count) - 1);
  c.bias = e.bias != nullptr && count > 0
               ? widen16(_mm256_maskz_loadu_epi16(c.mask, e.bias + column))
               : _mm512_setzero_ps();
  return c;
}

DST_AVX512 inline __m512 finished(__m512 sum, const Columns& c, const float* add,
                                  const Epilogue& e) {
  if (add != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(c.mask, add));
  if (e.bias != nullptr) sum = _mm512_add_ps(sum, c.bias);
  if (e.relu) {
    const __mmask16 negative = _mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_LT_OQ);
    sum = _mm512_mask_mov_ps(sum, negative, _mm512_setzero_ps());
  }
  return sum;
}

// Rounds to nearest even, as to_bf16 does, including subnormals.
DST_AVX512 inline __m256i round16(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i result =
      _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), nan, high, _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(result);
}

// The conversion instruction gives the same bits but flushes subnormals to zero, so these take the slow path.
DST_AVX512 inline __m512i round32(__m512 left, __m512 right) {
  constexpr int kSubnormal = 0x20;
  const __mmask16 subnormal =
      _mm512_fpclass_ps_mask(left, kSubnormal) | _mm512_fpclass_ps_mask(right, kSubnormal);
  if (__builtin_expect(subnormal != 0, 0)) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(round16(left)), round16(right), 1);
  }
  return (__m512i)_mm512_cvtne2ps_pbh(right, left);
}

// A masked store takes many cycles on some CPUs, even with a full mask.
DST_AVX512 inline void store(float* to, __m512 v, __mmask16 mask) {
  if (mask == 0xffff) {
    _mm512_storeu_ps(to, v);
  } else {
    _mm512_mask_storeu_ps(to, mask, v);
  }
}
DST_AVX512 inline void store(uint16_t* to, __m512i v, __mmask32 mask) {
  if (mask == 0xffffffff) {
    _mm512_storeu_si512(to, v);
  } else {
    _mm512_mask_storeu_epi16(to, mask, v);
  }
}

DST_AVX512 inline void finish_block(const float* sums, int64_t a_panel, int64_t b_panel,
                                    const Epilogue& e) {
  const int64_t row = a_panel * kPanel, column = b_panel * kPanel;
  const Columns left = columns_at(column, e), right = columns_at(column + 16, e);
  const int64_t rows = std::min(kPanel, e.m - row);
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = sums + i / 16 * 2 * kTileFloats + i % 16 * 16;
    const int64_t at = (row + i) * e.stride + column;
    const float* add = e.add != nullptr ? e.add + at : nullptr;
    const __m512 l = finished(_mm512_load_ps(from), left, add, e);
    const __m512 r =
        finished(_mm512_load_ps(from + kTileFloats), right, add != nullptr ? add + 16 : nullptr, e);
    if (e.out_f32 != nullptr) {
      store(e.out_f32 + at, l, left.mask);
      store(e.out_f32 + at + 16, r, right.mask);
    } else {
      store(e.out_bf16 + at, round32(l, r), left.mask | __mmask32{right.mask} << 16);
    }
  }
}

// Sets `fetch` to the part of A that is packed after panel m's part at block k.
void fetch_source(const PanelBlock& p, int64_t m, int64_t k, int64_t part_blocks, Fetch& fetch) {
  const int64_t next_m = m + 1 < p.a_panels ? m + 1 : 0;
  const int64_t next_k = m + 1 < p.a_panels ? k : k + part_blocks;
  fetch.a = nullptr;
  if (next_k >= p.depth_blocks) return;
  const int64_t at = (p.first_a_panel + next_m) * kPanel;
  const int64_t depth = (p.first_depth_block + next_k) * kDepthBlock;
  fetch.a = reinterpret_cast<const char*>(p.a.depth_major ? p.a.data + depth * p.a.stride + at
                                                          : p.a.data + at * p.a.stride + depth);
  fetch.a_row = p.a.stride * 2;
  fetch.a_block = p.a.depth_major ? kDepthBlock * fetch.a_row : kDepthBlock * 2;
}

DST_AVX512 void multiply(const BlockKernel& kernel, const PanelBlock& p, const Epilogue& epilogue,
                         float* scratch) {
  const int64_t parts = (p.depth_blocks + kernel.part_blocks - 1) / kernel.part_blocks;
  const int64_t part_blocks = (p.depth_blocks + parts - 1) / parts;
  const int64_t a_panel_bytes = p.depth_blocks * kBlockBytes;
  // The lines of B's next part are divided among the panels of A that are multiplied meanwhile.
  Fetch fetch;
  fetch.b_lines = std::min<int64_t>((kBlockBytes / 64 + p.a_panels - 1) / p.a_panels, 8);
  const int64_t out_size = epilogue.out_f32 != nullptr ? 4 : 2;
  char* out = epilogue.out_f32 != nullptr ? reinterpret_cast<char*>(epilogue.out_f32)
                                          : reinterpret_cast<char*>(epilogue.out_bf16);
  fetch.out_stride = epilogue.stride * out_size;
  fetch.out_bytes = kPanel * out_size;
  float* finished = scratch + p.a_panels * kBlockFloats;
  for (int64_t n = 0; n < p.b_panels; ++n) {
    for (int64_t k = 0; k < p.depth_blocks; k += part_blocks) {
      const int64_t blocks = std::min(part_blocks, p.depth_blocks - k);
      const bool last = k + blocks == p.depth_blocks;
      const char* b = p.b + n * p.b_panel_bytes + k * kBlockBytes;
      fetch.b = b + blocks * kBlockBytes;
      fetch.out_rows = last ? (kPanel + blocks - 1) / blocks : 0;
      for (int64_t m = 0; m < p.a_panels; ++m) {
        char* a = p.packed_a + m * a_panel_bytes + k * kBlockBytes;
        if (n == 0 && !p.a_is_packed) {
          pack_a(p.a, {p.first_a_panel + m, 1, p.first_depth_block + k, blocks}, a, a_panel_bytes);
          fetch_source(p, m, k, part_blocks, fetch);
        } else {
          fetch.a = nullptr;
        }
        float* sums = scratch + m * kBlockFloats;
        const int64_t rows = std::min(kPanel, epilogue.m - (p.first_a_panel + m) * kPanel);
        fetch.out = out + (p.first_a_panel + m) * kPanel * fetch.out_stride +
                    (p.first_b_panel + n) * fetch.out_bytes;
        kernel.multiply(a, b, blocks, rows, k > 0 ? sums : nullptr, last ? finished : sums, fetch);
        fetch.b += fetch.b_lines * blocks * 64;
        if (last) finish_block(finished, p.first_a_panel + m, p.first_b_panel + n, epilogue);
      }
    }
  }
}

}  // namespace

int64_t multiply_scratch_bytes(int64_t a_panels) {
  return (a_panels + 1) * kBlockFloats * static_cast<int64_t>(sizeof(float));
}

void multiply_panels(const BlockKernel& kernel, const PanelBlock& block, const Epilogue& epilogue,
                     float* scratch) {
  multiply(kernel, block, epilogue, scratch);
}

}  // namespace dstrain
