// AVX-512 helpers: 2^t, rounding, transposition. Included by amx.cpp and dot.cpp, inside their target regions.
#pragma once

namespace dstrain::attention::DST_TILES {

// Adding 1.5*2^23 to a float rounds it to an integer, which is then in the low bits of the mantissa.
inline constexpr float kRoundMagic = 12582912.0f;

// Returns 2^n 2^f for f in [-1/2, 1/2], where z = n + kRoundMagic; 0 below 2^-126, NaN for NaN. The polynomial
// has degree 4: its relative error of 2.7e-6 is far below the 2^-9 of the rounding to bf16 that follows.
inline __m512 exp2_split(__m512 z, __m512 f) {
  __m512 p = _mm512_set1_ps(0.009570101276040077f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.05591786280274391f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.240247443318367f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6931217908859253f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.9999992847442627f));
  const __mmask16 not_tiny = _mm512_cmp_ps_mask(z, _mm512_set1_ps(kRoundMagic - 126), _CMP_NLT_UQ);
  return _mm512_castsi512_ps(_mm512_maskz_add_epi32(not_tiny, _mm512_castps_si512(p),
                                                    _mm512_slli_epi32(_mm512_castps_si512(z), 23)));
}

// 2^(s * scale + shift).
inline __m512 exp2_shifted(__m512 s, __m512 scale, __m512 shift) {
  const __m512 magic = _mm512_set1_ps(kRoundMagic);
  const __m512 t = _mm512_fmadd_ps(s, scale, shift);
  const __m512 z = _mm512_add_ps(t, magic);
  return exp2_split(z, _mm512_sub_ps(t, _mm512_sub_ps(z, magic)));
}

// 2^(s * scale - m) for an integer m, given as kRoundMagic - m: saves an operation and keeps m exact.
inline __m512 exp2_minus_integer(__m512 s, __m512 scale, __m512 magic_minus_m) {
  const __m512 z = _mm512_fmadd_ps(s, scale, magic_minus_m);
  return exp2_split(z, _mm512_fmsub_ps(s, scale, _mm512_sub_ps(z, magic_minus_m)));
}

// Rounds 32 weights to bf16 for the next product; lanes outside `keep` become zero.
inline __m512i round_pair(__mmask32 keep, __m512 low, __m512 high) {
  return (__m512i)_mm512_maskz_cvtne2ps_pbh(keep, high, low);
}

// Returns the sums of neighbouring values of 32 in bf16.
inline __m512 sum_of_pairs(__m512i bits) {
  const __m512i odd = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  return _mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)), _mm512_castsi512_ps(odd));
}

// Rounds results as runtime/core/dtype.h does. The instruction above would flush subnormals to zero.
inline __m256i round_result(__m512 x) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  r = _mm512_mask_or_epi32(r, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(r);
}

inline __m512 widen(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

inline __mmask16 first_lanes16(int64_t n) {
  return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}
inline __mmask32 first_lanes32(int64_t n) {
  return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1;
}

// Transposes 16 x 16 elements of 32 bits.
inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4g + c] holds column 4l + c of rows 4g..4g+3 in its 128-bit lane l.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xdd);
    const __m512i d = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
    const __m512i e = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xdd);
    t[c] = _mm512_shuffle_i32x4(a, d, 0x88);
    t[c + 8] = _mm512_shuffle_i32x4(a, d, 0xdd);
    t[c + 4] = _mm512_shuffle_i32x4(b, e, 0x88);
    t[c + 12] = _mm512_shuffle_i32x4(b, e, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace dstrain::attention::DST_TILES
