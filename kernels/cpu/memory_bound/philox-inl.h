// Philox4x32-10 on packs: computes 16 blocks at once, with the same words as runtime/core/philox.h.
#if defined(DSTRAIN_SIMD_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_SIMD_PHILOX_INL_H
#undef DSTRAIN_SIMD_PHILOX_INL_H
#else
#define DSTRAIN_SIMD_PHILOX_INL_H
#endif

#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/philox.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {

// The 64 words of 16 blocks, in the order of sixteen calls of philox().
using BlockWords = uint32_t[4 * kPack];

#if HWY_TARGET == HWY_SCALAR
// The blocks of 16 successive counters: word `counting` of `counter` goes up by one a block.
SIMD_FN void philox_blocks(PhiloxKey key, PhiloxBlock counter, int counting, BlockWords& to) {
  for (int k = 0; k < kPack; ++k, ++counter[static_cast<size_t>(counting)]) {
    const PhiloxBlock block = philox(key, counter);
    std::memcpy(to + 4 * k, block.data(), sizeof(block));
  }
}
#else
using DW = hn::Repartition<uint64_t, DU>;
using Wide = hn::Vec<DW>;
constexpr int kWide = static_cast<int>(hn::MaxLanes(DW()));

// The ten rounds on vectors of 64-bit lanes whose low halves hold the words: a 64-bit product then takes one
// instruction, and its low word needs no extraction. Two vectors at a time hide each other's latency.
SIMD_FN void philox_rounds(PhiloxKey key, Wide (&c)[4][2]) {
  const auto m0 = hn::BitCast(DU(), hn::Set(DW(), 0xD2511F53u));
  const auto m2 = hn::BitCast(DU(), hn::Set(DW(), 0xCD9E8D57u));
  for (int round = 0; round < 10; ++round) {
    const Wide k0 = hn::Set(DW(), key[0]), k1 = hn::Set(DW(), key[1]);
    SIMD_UNROLL
    for (int i = 0; i < 2; ++i) {
      const Wide p0 = hn::MulEven(hn::BitCast(DU(), c[0][i]), m0);
      const Wide p2 = hn::MulEven(hn::BitCast(DU(), c[2][i]), m2);
      c[0][i] = hn::Xor3(hn::ShiftRight<32>(p2), c[1][i], k0);
      c[2][i] = hn::Xor3(hn::ShiftRight<32>(p0), c[3][i], k1);
      c[1][i] = p2;
      c[3][i] = p0;
    }
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

// The blocks of 16 successive counters: word `counting` of `counter` goes up by one a block.
SIMD_FN void philox_blocks(PhiloxKey key, PhiloxBlock counter, int counting, BlockWords& to) {
  // Lanes 2j and 2j + 1 hold blocks j and kWide / 2 + j, so that interleaving puts the blocks in order.
  alignas(64) uint64_t order[kWide];
  for (uint64_t j = 0; j < kWide / 2; ++j) {
    order[2 * j] = j;
    order[2 * j + 1] = kWide / 2 + j;
  }
  const Wide lanes = hn::Load(DW(), order);
  for (int at = 0; at < kPack; at += 2 * kWide) {
    Wide c[4][2];
    SIMD_UNROLL
    for (int w = 0; w < 4; ++w)
      for (int i = 0; i < 2; ++i) {
        const auto first = static_cast<uint32_t>(w == counting ? at + i * kWide : 0);
        c[w][i] = hn::Set(DW(), counter[static_cast<size_t>(w)] + first);
        if (w == counting) c[w][i] = hn::Add(c[w][i], lanes);
      }
    philox_rounds(key, c);
    SIMD_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto pair = [](Wide low, Wide high) SIMD_INLINE {
        return hn::BitCast(
            DW(), hn::OddEven(hn::BitCast(DU(), hn::ShiftLeft<32>(high)), hn::BitCast(DU(), low)));
      };
      const Wide a = pair(c[0][i], c[1][i]), b = pair(c[2][i], c[3][i]);
      auto* p = reinterpret_cast<uint64_t*>(to + 4 * (at + i * kWide));
      hn::StoreU(hn::InterleaveLower(a, b), DW(), p);
      hn::StoreU(hn::InterleaveUpper(DW(), a, b), DW(), p + kWide);
    }
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#endif  // DSTRAIN_SIMD_PHILOX_INL_H
