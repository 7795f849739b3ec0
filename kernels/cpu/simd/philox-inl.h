// Philox4x32-10 on packs: 16 blocks at once, the same words as runtime/core/philox.h.
#if defined(DSTRAIN_SIMD_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_PHILOX_INL_H
#undef DSTRAIN_SIMD_PHILOX_INL_H
#else
#define DSTRAIN_SIMD_PHILOX_INL_H
#endif

#include "kernels/cpu/simd/pack-inl.h"
#include "runtime/core/philox.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

struct Words {
  UPack w[4];  // lane l: word w of the l-th block
};

HWY_INLINE UPack all_words(uint32_t x) {
  UPack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = hn::Set(DU(), x);
  return r;
}

// first, first + 1, ..., first + 15
HWY_INLINE UPack count_from(uint32_t first) {
  UPack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    r.v[i] = hn::Iota(DU(), first + static_cast<uint32_t>(i * kLanes));
  return r;
}

HWY_INLINE UPack exclusive_or(UPack a, UPack b, UPack c) {
  UPack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) r.v[i] = hn::Xor3(a.v[i], b.v[i], c.v[i]);
  return r;
}

// The high and low 32 bits of a * b.
HWY_INLINE void multiply(UPack a, uint32_t b, UPack& high, UPack& low) {
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
#if HWY_TARGET == HWY_SCALAR
    const uint64_t product = uint64_t{hn::GetLane(a.v[i])} * b;
    high.v[i] = hn::Set(DU(), static_cast<uint32_t>(product >> 32));
    low.v[i] = hn::Set(DU(), static_cast<uint32_t>(product));
#else
    const hn::Repartition<uint64_t, DU> wide;
    const auto factor = hn::Set(DU(), b);
    const auto even = hn::MulEven(a.v[i], factor);
    const auto odd =
        hn::MulEven(hn::BitCast(DU(), hn::ShiftRight<32>(hn::BitCast(wide, a.v[i]))), factor);
    high.v[i] = hn::OddEven(hn::BitCast(DU(), odd), hn::BitCast(DU(), hn::ShiftRight<32>(even)));
    low.v[i] = hn::OddEven(hn::BitCast(DU(), hn::ShiftLeft<32>(odd)), hn::BitCast(DU(), even));
#endif
  }
}

HWY_INLINE Words philox_words(PhiloxKey key, UPack c0, UPack c1, UPack c2, UPack c3) {
  for (int round = 0; round < 10; ++round) {
    UPack high0, low0, high2, low2;
    multiply(c0, 0xD2511F53u, high0, low0);
    multiply(c2, 0xCD9E8D57u, high2, low2);
    c0 = exclusive_or(high2, c1, all_words(key[0]));
    c2 = exclusive_or(high0, c3, all_words(key[1]));
    c1 = low2;
    c3 = low0;
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Writes the 64 words of 16 blocks block by block, as sixteen calls of philox() would.
HWY_INLINE void store_blocks(const Words& words, uint32_t* to) {
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    hn::StoreInterleaved4(words.w[0].v[i], words.w[1].v[i], words.w[2].v[i], words.w[3].v[i], DU(),
                          to + 4 * i * kLanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_PHILOX_INL_H
