// Bound by arithmetic, not by its 4 bytes per element: ten rounds of Philox for four elements, then a logarithm,
// a square root and a sine-cosine pair for every two.
#include "kernels/cpu/memory_bound/init_weights.h"

#include <algorithm>

#include "kernels/cpu/memory_bound/memory_bound.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/init_weights.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/math-inl.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "kernels/cpu/memory_bound/philox-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kGroup = 4 * kPack;  // elements of 16 Philox blocks

// Returns the word's upper 24 bits as a float.
SIMD_FN Pack upper_bits(UPack w) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    r.v[i] = hn::ConvertTo(DF(), hn::BitCast(DI(), hn::ShiftRight<8>(w.v[i])));
  return r;
}

// Returns sqrt(-2 ln u), where u is the word mapped to (0, 1].
SIMD_FN Pack radius(UPack w) {
  return square_root(all(-2) * logarithm((upper_bits(w) + all(1)) * all(0x1p-24f)));
}

// Computes cosine and sine of a uniform angle: the upper two bits choose the quadrant, the other bits the angle
// in it, from -pi / 4 to pi / 4.
SIMD_FN void direction(UPack w, Pack& cosine, Pack& sine) {
  Pack x;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const auto in_quadrant = hn::And(w.v[i], hn::Set(DU(), 0x3fffffffu));
    const auto centred = hn::Sub(hn::BitCast(DI(), in_quadrant), hn::Set(DI(), 0x20000000));
    x.v[i] = hn::Mul(hn::ConvertTo(DF(), centred), hn::Set(DF(), 1.46291807926715968e-9f));
  }
  const Pack z = x * x;
  Pack s = fma(z, all(2.7557319224e-6f), all(-1.9841269841e-4f));
  s = fma(fma(s, z, all(8.3333333333e-3f)), z, all(-1.6666666667e-1f));
  s = fma(s, z * x, x);
  Pack c = fma(z, all(2.4801587302e-5f), all(-1.3888888889e-3f));
  c = fma(fma(fma(c, z, all(4.1666666667e-2f)), z, all(-0.5f)), z, all(1));
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const auto sign = hn::Set(DU(), 0x80000000u);
    const auto odd = hn::RebindMask(DF(), hn::TestBit(w.v[i], hn::Set(DU(), 0x40000000u)));
    const auto sine_sign = hn::And(w.v[i], sign);
    const auto cosine_sign = hn::And(hn::Xor(w.v[i], hn::ShiftLeft<1>(w.v[i])), sign);
    const auto a = hn::IfThenElse(odd, s.v[i], c.v[i]), b = hn::IfThenElse(odd, c.v[i], s.v[i]);
    cosine.v[i] = hn::Xor(a, hn::BitCast(DF(), cosine_sign));
    sine.v[i] = hn::Xor(b, hn::BitCast(DF(), sine_sign));
  }
}

// Writes the 64 elements from 64 * group on.
SIMD_FN void write_group(bool normal, float scale, PhiloxKey key, int64_t group, float* to) {
  const auto block = static_cast<uint64_t>(group) * kPack;
  alignas(64) BlockWords words;
  philox_blocks(key, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, 0,
                words);
  UPack w[4];
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    hn::LoadInterleaved4(DU(), words + 4 * i * kLanes, w[0].v[i], w[1].v[i], w[2].v[i], w[3].v[i]);
  Pack x[4];
  if (normal) {
    for (int half = 0; half < 2; ++half) {
      const Pack length = radius(w[2 * half]) * all(scale);
      Pack cosine, sine;
      direction(w[2 * half + 1], cosine, sine);
      x[2 * half] = length * cosine;
      x[2 * half + 1] = length * sine;
    }
  } else {
    SIMD_UNROLL
    for (int k = 0; k < 4; ++k) x[k] = (upper_bits(w[k]) * all(0x1p-23f) - all(1)) * all(scale);
  }
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    hn::StoreInterleaved4(x[0].v[i], x[1].v[i], x[2].v[i], x[3].v[i], DF(), to + 4 * i * kLanes);
}

// Writes elements [begin, end) to out[0 .. end - begin).
void write_elements(bool normal, float scale, PhiloxKey key, float* out, int64_t begin,
                    int64_t end) {
  for (int64_t group = begin / kGroup; group * kGroup < end; ++group) {
    const int64_t first = group * kGroup;
    if (first >= begin && first + kGroup <= end) {
      write_group(normal, scale, key, group, out + (first - begin));
      continue;
    }
    alignas(64) float buffer[kGroup];
    write_group(normal, scale, key, group, buffer);
    for (int64_t e = HWY_MAX(first, begin); e < HWY_MIN(first + kGroup, end); ++e)
      out[e - begin] = buffer[e - first];
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain {
namespace simd {

namespace {
void fill(bool normal, float scale, PhiloxKey key, float* out, int64_t begin, int64_t count,
          int threads) {
  parallel_ranges(threads, count, kFlatGrain, [&](int64_t from, int64_t to) {
    DSTRAIN_BEST(write_elements)(normal, scale, key, out + from, begin + from, begin + to);
  });
}
}  // namespace
}  // namespace simd

void fill_normal(float* out, int64_t begin, int64_t count, float std, PhiloxKey key, int threads) {
  simd::fill(true, std, key, out, begin, count, threads);
}

void fill_uniform(float* out, int64_t begin, int64_t count, float bound, PhiloxKey key,
                  int threads) {
  simd::fill(false, bound, key, out, begin, count, threads);
}

}  // namespace dstrain
#endif
