#include "kernels/cpu/products/panel_gemm.h"

#include <immintrin.h>

#include <algorithm>

#define DST_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

namespace dstrain {
namespace {

DST_AVX512 inline __m512 widen16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// To nearest even, as to_bf16 does; the conversion instruction would flush subnormals.
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

// Sixteen columns of `rows` rows out of a tile.
DST_AVX512 inline void finish_tile(const float* sums, int64_t row, int64_t column,
                                   const Epilogue& e) {
  const int64_t rows = std::min<int64_t>(16, e.m - row), columns = e.n - column;
  if (rows <= 0 || columns <= 0) return;
  const auto mask = static_cast<__mmask16>(columns >= 16 ? 0xffff : (1 << columns) - 1);
  const __m512 bias = e.bias != nullptr ? widen16(_mm256_maskz_loadu_epi16(mask, e.bias + column))
                                        : _mm512_setzero_ps();
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = (row + i) * e.stride + column;
    __m512 v = _mm512_load_ps(sums + i * 16);
    if (e.add != nullptr) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, e.add + at));
    if (e.bias != nullptr) v = _mm512_add_ps(v, bias);
    if (e.relu) {
      const __mmask16 negative = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ);
      v = _mm512_mask_mov_ps(v, negative, _mm512_setzero_ps());
    }
    if (e.out_f32 != nullptr) {
      _mm512_mask_storeu_ps(e.out_f32 + at, mask, v);
    } else {
      _mm256_mask_storeu_epi16(e.out_bf16 + at, mask, round16(v));
    }
  }
}

DST_AVX512 inline void finish_block(const float* sums, int64_t a_panel, int64_t b_panel,
                                    const Epilogue& e) {
  const int64_t row = a_panel * kPanel, column = b_panel * kPanel;
  finish_tile(sums, row, column, e);
  finish_tile(sums + kTileFloats, row, column + 16, e);
  finish_tile(sums + 2 * kTileFloats, row + 16, column, e);
  finish_tile(sums + 3 * kTileFloats, row + 16, column + 16, e);
}

DST_AVX512 void multiply(const BlockKernel& kernel, const PanelBlock& p, const Epilogue& epilogue,
                         float* scratch) {
  const int64_t parts = (p.depth_blocks + kernel.part_blocks - 1) / kernel.part_blocks;
  const int64_t part_blocks = (p.depth_blocks + parts - 1) / parts;
  const int64_t a_panel_bytes = p.depth_blocks * kBlockBytes;
  // The lines of a block of k, shared out among the panels of A that pass by.
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
        const char* a = p.a + m * a_panel_bytes + k * kBlockBytes;
        float* sums = scratch + m * kBlockFloats;
        fetch.out = out + (p.first_a_panel + m) * kPanel * fetch.out_stride +
                    (p.first_b_panel + n) * fetch.out_bytes;
        kernel.multiply(a, b, blocks, k > 0 ? sums : nullptr, last ? finished : sums, fetch);
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
