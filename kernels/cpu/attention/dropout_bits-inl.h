// Computes dropout masks of attention weights as rows of bits, by vectorized Philox4x32-10: a Philox block gives
// the bits of eight elements, and each 64-bit lane computes a block. Included once per Highway target.
// Invariant: bit n of row r is dropout_bits(key, sample, element) >= threshold (runtime/core/philox.h) with
// element = first_element + r * row_stride + n, at any alignment of the row.
#if defined(DSTRAIN_ATTENTION_DROPOUT_BITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSTRAIN_ATTENTION_DROPOUT_BITS_INL_H_
#undef DSTRAIN_ATTENTION_DROPOUT_BITS_INL_H_
#else
#define DSTRAIN_ATTENTION_DROPOUT_BITS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention/dropout_bits.h"
#include "runtime/core/philox.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::attention::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

inline void mask_rows(const MaskRows& m) {
  for (int64_t r = 0; r < m.rows; ++r) {
    uint64_t* row = m.bits + r * m.bits_stride;
    const uint64_t first =
        m.first_element + static_cast<uint64_t>(r) * static_cast<uint64_t>(m.row_stride);
    std::fill_n(row, mask_words(m.columns), 0);
    for (int64_t n = 0; n < m.columns; ++n) {
      const uint64_t kept =
          dropout_bits(m.key, m.sample, first + static_cast<uint64_t>(n)) >= m.threshold;
      row[n / 64] |= kept << (n % 64);
    }
  }
}

#else

using U64 = hn::ScalableTag<uint64_t>;
using V64 = hn::Vec<U64>;

// The four words of the Philox counters, for as many blocks as a vector has lanes. A word is in the low 32 bits of
// a lane. The high 32 bits are undefined; products of even words do not read them.
struct Counters {
  V64 c0, c1, c2, c3;
};

HWY_INLINE V64 even_product(V64 c, uint32_t factor) {
  const hn::Repartition<uint32_t, U64> d32;
  return hn::MulEven(hn::BitCast(d32, c), hn::Set(d32, factor));
}

// Both move the high half of each lane into its low half. A shuffle and a shift run on different ports of x86
// cores, so a round uses one of each.
HWY_INLINE V64 high_by_shuffle(V64 v) {
  const hn::Repartition<uint32_t, U64> d32;
  return hn::BitCast(U64(), hn::DupOdd(hn::BitCast(d32, v)));
}
HWY_INLINE V64 high_by_shift(V64 v) {
  return hn::ShiftRight<32>(v);
}

HWY_INLINE void philox_round(Counters& c, V64 k0, V64 k1) {
  const V64 p0 = even_product(c.c0, 0xD2511F53u), p1 = even_product(c.c2, 0xCD9E8D57u);
  c.c0 = hn::Xor(hn::Xor(high_by_shift(p1), c.c1), k0);
  c.c1 = p1;
  c.c2 = hn::Xor(hn::Xor(high_by_shuffle(p0), c.c3), k1);
  c.c3 = p0;
}

// Writes the mask bits of Lanes(U64) consecutive Philox blocks to `out`, one byte a block.
HWY_INLINE void store_kept(const Counters& c, uint32_t threshold, uint8_t* out) {
  const U64 d;
  const hn::Repartition<uint16_t, U64> d16;
  constexpr size_t kHalf = hn::MaxLanes(U64()) / 2;
  const auto low = hn::Set(d, 0xffffffffu);
  const auto below = hn::Set(d16, static_cast<uint16_t>(threshold - 1));
  const auto first = hn::Or(hn::And(c.c0, low), hn::ShiftLeft<32>(c.c1));
  const auto second = hn::Or(hn::And(c.c2, low), hn::ShiftLeft<32>(c.c3));
  // Lanes alternate between the lower and the upper half of the blocks (block_of_lane), so interleaving puts
  // the blocks in order.
  const auto a = hn::BitCast(d16, hn::InterleaveLower(d, first, second));
  const auto b = hn::BitCast(d16, hn::InterleaveUpper(d, first, second));
  hn::StoreMaskBits(d16, hn::Gt(a, below), out);
  hn::StoreMaskBits(d16, hn::Gt(b, below), out + kHalf);
}

// Computes the dropout mask of one sample at one site, two vectors of Philox blocks at a time. It holds the values
// that are the same for all blocks.
struct Generator {
  uint64_t block_of_lane[hn::MaxLanes(U64())];
  uint32_t k0[10], k1[10];
  uint64_t sample;
  uint32_t threshold;

  Generator(PhiloxKey key, uint64_t of_sample, uint32_t dropped_below)
      : sample(of_sample), threshold(dropped_below) {
    constexpr size_t kLanes = hn::MaxLanes(U64());
    for (size_t lane = 0; lane < kLanes; ++lane) {
      block_of_lane[lane] = lane / 2 + (lane % 2) * (kLanes / 2);
    }
    for (uint32_t round = 0; round < 10; ++round) {
      k0[round] = key[0] + round * 0x9E3779B9u;
      k1[round] = key[1] + round * 0xBB67AE85u;
    }
  }

  // Writes the mask bytes of blocks first .. first + 2*Lanes(U64) - 1. Two vectors are independent, so their
  // instructions overlap.
  HWY_INLINE void two_vectors(uint64_t first, uint8_t* out) const {
    const U64 d;
    constexpr size_t kLanes = hn::MaxLanes(U64());
    const auto block = hn::Add(hn::Set(d, first), hn::LoadU(d, block_of_lane));
    const auto next = hn::Add(block, hn::Set(d, kLanes));
    const auto s_low = hn::Set(d, sample & 0xffffffffu), s_high = hn::Set(d, sample >> 32);
    Counters x{s_low, s_high, block, hn::ShiftRight<32>(block)};
    Counters y{s_low, s_high, next, hn::ShiftRight<32>(next)};
#pragma GCC unroll 10
    for (size_t round = 0; round < 10; ++round) {
      const auto key0 = hn::Set(d, k0[round]), key1 = hn::Set(d, k1[round]);
      philox_round(x, key0, key1);
      philox_round(y, key0, key1);
    }
    store_kept(x, threshold, out);
    store_kept(y, threshold, out + kLanes);
  }
};

inline void mask_rows(const MaskRows& m) {
  constexpr int64_t kStep = 2 * static_cast<int64_t>(hn::MaxLanes(U64()));
  const Generator generator(m.key, m.sample, m.threshold);
  uint8_t shifted[kMaxMaskColumns / 8 + 64];
  for (int64_t r = 0; r < m.rows; ++r) {
    const uint64_t element =
        m.first_element + static_cast<uint64_t>(r) * static_cast<uint64_t>(m.row_stride);
    const uint64_t block = element / 8;
    const int offset = static_cast<int>(element % 8);
    auto* row = reinterpret_cast<uint8_t*>(m.bits + r * m.bits_stride);
    uint8_t* out = offset == 0 ? row : shifted;
    const int64_t words = (m.columns + 63) / 64;
    const int64_t blocks = words * 8 + (offset == 0 ? 0 : 1);
    for (int64_t b = 0; b < blocks; b += kStep) {
      generator.two_vectors(block + static_cast<uint64_t>(b), out + b);
    }
    if (offset == 0) continue;
    for (int64_t w = 0; w < words; ++w) {
      uint64_t low;
      std::memcpy(&low, shifted + 8 * w, 8);
      const uint64_t high = shifted[8 * w + 8];
      m.bits[r * m.bits_stride + w] = (low >> offset) | (high << (64 - offset));
    }
  }
}

#endif

}  // namespace dstrain::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
