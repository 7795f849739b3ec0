// quantize_int4 and requantize_int4 with error feedback (runtime/ir/ops/boundary.h). Groups of blocks stay in the
// first-level cache between their passes: what is sent and its scales, its codes and what they lose, the next errors.
// Minimum memory traffic: that of the ops without (int4.cpp), and 2.03 bytes an element.
#include <cstring>
#include <utility>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/codecs/int4_feedback.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/codecs/int4_pack-inl.h"
#include "kernels/cpu/memory_bound/codecs/int4_sum-inl.h"
#include "kernels/cpu/memory_bound/codecs/int8-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_INT4_FEEDBACK_ONCE
#define DSTRAIN_SIMD_INT4_FEEDBACK_ONCE
namespace dstrain::simd {
namespace {

static_assert(kQuantizedBlock % kInt4Block == 0);

// The errors of one part of n values: those before (null: zeros) and the next ones. They may be the same.
struct Feedback {
  const std::byte* error;
  std::byte* next;
  float beta, loss_scale;
};

int64_t error_blocks(int64_t n) {
  return (n + kQuantizedBlock - 1) / kQuantizedBlock;
}

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kPerError = kQuantizedBlock / kInt4Block;  // blocks of int4 in one of errors
constexpr int64_t kErrorGroup = kGroup / kPerError;          // blocks of errors in a group
constexpr int64_t kErrorScale = sizeof(float);

// What is known of the blocks of a group between its passes.
struct FeedbackGroup {
  Int4Block sent[kGroup];   // values and errors before
  Int4Block error[kGroup];  // errors before, and then the next ones
  Int4Scales scales;
  IPack largest[kErrorGroup];      // magnitudes of the next errors, by lane
  float error_scale[kErrorGroup];  // of the next errors
};

// Loads n values of int8 times `scale` as a block; the others are 0.
SIMD_FN void load_errors(const std::byte* codes, int64_t n, float scale, Int4Block& block) {
  alignas(64) std::byte some[kInt4Block];
  if (n < kInt4Block) {
    std::memset(some, 0, sizeof some);
    std::memcpy(some, codes, static_cast<size_t>(n));
    codes = some;
  }
  const auto by = hn::Set(DF(), scale);
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i) {
      const std::byte* const from = codes + 2 * (q * kPack + i * kLanes);
#if HWY_TARGET == HWY_AVX3
      // (two ^ a) & b: a byte, 128 above its code, behind the bits of 2^23 or, where it is 8 bits higher, of 2^15.
      const __m512i two =
          _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
      const auto code_at = [=](int a, int b, float above) SIMD_INLINE {
        const __m512i bits =
            _mm512_ternarylogic_epi32(two, _mm512_set1_epi32(a), _mm512_set1_epi32(b), 0x28);
        return hn::Sub(hn::Vec<DF>{_mm512_castsi512_ps(bits)}, hn::Set(DF(), above));
      };
      const auto first = code_at(0x4b000080, ~0xffff00, 8388608.0f + 128.0f);
      const auto second = code_at(0x47008000, ~0xff00ff, 32768.0f + 128.0f);
#else
      alignas(64) uint16_t words[kLanes];
      std::memcpy(words, from, sizeof words);
      const auto two = hn::BitCast(DI(), hn::PromoteTo(DU(), hn::Load(DH(), words)));
      const auto first = hn::ConvertTo(DF(), hn::ShiftRight<24>(hn::ShiftLeft<24>(two)));
      const auto second = hn::ConvertTo(DF(), hn::ShiftRight<24>(hn::ShiftLeft<16>(two)));
#endif
      block.first[q].v[i] = hn::Mul(first, by);
      block.second[q].v[i] = hn::Mul(second, by);
    }
}

// Stores the first n values of a block as int8.
SIMD_FN void store_errors(const Int4Block& block, int64_t n, float scale, std::byte* to) {
  if (!(scale > 0)) {
    std::memset(to, 0, static_cast<size_t>(n));
    return;
  }
  const Pack inverse = all(1.0f / scale);
#if HWY_TARGET == HWY_AVX3
  alignas(64) std::byte some[kInt4Block];
  std::byte* const out = n == kInt4Block ? to : some;
  const auto words = [&](int q) SIMD_INLINE {
    return _mm512_packs_epi32(_mm512_cvtps_epi32((block.first[q] * inverse).v[0].raw),
                              _mm512_cvtps_epi32((block.second[q] * inverse).v[0].raw));
  };
  // 128 bits have four bytes each of the first and the second values of two quarters.
  const __m512i in_turns =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
  const __m512i by_quarter = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; q += 2) {
    const __m512i bytes = _mm512_shuffle_epi8(_mm512_packs_epi16(words(q), words(q + 1)), in_turns);
    _mm512_storeu_si512(out + q * kInt4Quarter, _mm512_permutexvar_epi64(by_quarter, bytes));
  }
  if (out == some) std::memcpy(to, some, static_cast<size_t>(n));
#else
  alignas(64) float wide[kInt4Block];
  to_floats(block, wide);
  for_packs(0, n, [&](int64_t i, auto lanes) SIMD_INLINE {
    store_codes(load(wide + i) * inverse, reinterpret_cast<int8_t*>(to) + i, lanes);
  });
#endif
}

// The next errors of blocks, and the largest magnitude of each lane. Without kScaled the loss scale is 1.
template <bool kScaled>
class NextErrors {
 public:
  SIMD_FN explicit NextErrors(const Feedback& feedback)
      : down_(hn::Set(DF(), 1.0f / feedback.loss_scale)),
        stays_(hn::Set(DF(), feedback.beta)),
        taken_(hn::Set(DF(), 1.0f - feedback.beta)) {
    for (auto& v : largest_.v) v = hn::Zero(DI());
  }
  // Sets the error of part i of a pack, of which the value `lost` does not travel.
  SIMD_FN void set(hn::Vec<DF> lost, int i, hn::Vec<DF>& error) {
    if constexpr (kScaled) lost = hn::Mul(lost, down_);
    keep(hn::Add(hn::Mul(error, stays_), hn::Mul(lost, taken_)), i, error);
  }
  SIMD_FN void keep(hn::Vec<DF> next, int i, hn::Vec<DF>& error) {
    error = next;
    largest_.v[i] = hn::Max(largest_.v[i], hn::BitCast(DI(), hn::Abs(next)));
  }
  SIMD_FN const IPack& largest() const { return largest_; }

 private:
  hn::Vec<DF> down_, stays_, taken_;
  IPack largest_;
};

// Returns the scale of errors whose largest magnitudes these are.
SIMD_FN float error_scale(const IPack& by_lane) {
  auto all_parts = by_lane.v[0];
  for (int i = 1; i < kParts; ++i) all_parts = hn::Max(all_parts, by_lane.v[i]);
  const auto largest = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(DI(), all_parts)));
  return largest < std::numeric_limits<float>::max() / 2 ? int8_scale(largest) : 0.0f;
}

// Packs a block of n values; `scale` and `inverse` have those of its quarters.
template <class Next>
SIMD_FN void pack_and_compare(const Int4Block& sent, int64_t n, const float* scale,
                              const float* inverse, std::byte* to, Next& next, Int4Block& error) {
  Int4Codes codes;
  SIMD_UNROLL
  for (int q = 0; q < kQuarters; ++q) {
    const auto by = hn::Set(DF(), inverse[q]), step = hn::Set(DF(), scale[q]);
    // A code times its scale is exact, so that a fused difference has the bits of one that is not.
    const auto pack = [&](auto x, int i, auto& e) SIMD_INLINE {
      const auto code = code_of(hn::Min(hn::Mul(x, by), hn::Set(DF(), 7.0f)));
      next.set(hn::NegMulAdd(value_of(code), step, x), i, e);
      return code;
    };
    for (int i = 0; i < kParts; ++i) {
      codes.first[q].v[i] = pack(sent.first[q].v[i], i, error.first[q].v[i]);
      codes.second[q].v[i] = pack(sent.second[q].v[i], i, error.second[q].v[i]);
    }
  }
  store_codes(codes, n, to);
}

// The same for a block that comes back as zeros or as NaN, which leaves the errors as they are.
template <class Next>
SIMD_FN void pack_nothing(const Int4Block& sent, int64_t n, bool zeros, std::byte* to, Next& next,
                          Int4Block& error) {
  std::memset(to, 0, static_cast<size_t>((n + 1) / 2));
  const auto compare = [&](auto x, int i, auto& e) SIMD_INLINE {
    if (zeros)
      next.set(x, i, e);
    else
      next.keep(e, i, e);
  };
  for (int q = 0; q < kQuarters; ++q)
    for (int i = 0; i < kParts; ++i) {
      compare(sent.first[q].v[i], i, error.first[q].v[i]);
      compare(sent.second[q].v[i], i, error.second[q].v[i]);
    }
}

// Packs n values with their errors. Without kScaled the loss scale is 1.
template <bool kScaled>
class FeedbackPacker {
 public:
  SIMD_FN FeedbackPacker(const Feedback& feedback, int64_t n, std::byte* packed)
      : feedback_(feedback),
        n_(n),
        packed_(packed),
        read_((feedback.error ? feedback.error : feedback.next) + error_blocks(n) * kErrorScale) {}

  // Packs blocks of errors [begin, end). values(b, blocks, f) calls f(k, block) for `blocks` blocks of int4 from
  // b on. Each pass ends in long chains of operations, beside which the processor does the next pass of another group.
  template <class Values>
  SIMD_FN void pack(const Values& values, int64_t begin, int64_t end) {
    FeedbackGroup groups[3];
    FeedbackGroup *next = groups, *here = groups + 1, *done = groups + 2;
    const int64_t first = begin * kPerError, last = std::min(end * kPerError, int4_blocks(n_));
    for (int64_t b = first - kGroup; b < last + kGroup; b += kGroup) {
      if (b + kGroup < last) begin_group(values, b + kGroup, count(b + kGroup, last), *next);
      if (b > first)
        for (int64_t e = 0; e * kPerError < count(b - kGroup, last); ++e)
          done->error_scale[e] = error_scale(done->largest[e]);
      if (b >= first && b < last) pack_group(b, count(b, last), *here);
      if (b > first) store_next(b - kGroup, count(b - kGroup, last), *done);
      std::swap(done, here);
      std::swap(here, next);
    }
  }

 private:
  static int64_t count(int64_t b, int64_t last) { return std::min<int64_t>(kGroup, last - b); }
  SIMD_FN int64_t size(int64_t b) const { return std::min(kInt4Block, n_ - b * kInt4Block); }

  template <class Values>
  SIMD_FN void begin_group(const Values& values, int64_t b, int64_t blocks, FeedbackGroup& group) {
    const auto up = all(feedback_.loss_scale);
    QuarterKeys keys[kGroup];
    values(b, blocks, [&](int64_t k, const Int4Block& x) SIMD_INLINE {
      Int4Block &error = group.error[k], &sent = group.sent[k];
      load_error(b + k, error);
      SIMD_UNROLL
      for (int q = 0; q < kQuarters; ++q) {
        sent.first[q] = x.first[q] + (kScaled ? error.first[q] * up : error.first[q]);
        sent.second[q] = x.second[q] + (kScaled ? error.second[q] * up : error.second[q]);
      }
      keys[k] = largest_keys(sent);
    });
    for (int64_t k = blocks; k < kGroup; ++k) keys[k] = keys[0];
    scales_of(joined(keys), group.scales);
  }

  SIMD_FN void load_error(int64_t b, Int4Block& error) const {
    static constexpr std::byte kNone[kInt4Block] = {};
    float scale = 0;
    const std::byte* codes = kNone;
    if (feedback_.error) {
      std::memcpy(&scale, feedback_.error + b / kPerError * kErrorScale, sizeof scale);
      codes = read_ + b * kInt4Block;
    }
    load_errors(codes, size(b), scale, error);
  }

  SIMD_FN void pack_group(int64_t b, int64_t blocks, FeedbackGroup& group) {
    const Int4Scales& scales = group.scales;
    for (int64_t e = 0; e * kPerError < blocks; ++e) {
      NextErrors<kScaled> next(feedback_);
      for (int64_t k = e * kPerError; k < std::min(blocks, (e + 1) * kPerError); ++k) {
        const int64_t lane = k * kQuarters, n = size(b + k);
        const uint32_t word = scales.word[lane];
        std::memcpy(packed_ + (b + k) * kInt4Word, &word, sizeof word);
        std::byte* const to = packed_ + int4_blocks(n_) * kInt4Word + (b + k) * kInt4BlockBytes;
        hwy::Prefetch(to + kCodesAhead);
        const std::byte* const ahead = read_ + (b + k) * kInt4Block + kCodesAhead;
        hwy::Prefetch(ahead);
        hwy::Prefetch(ahead + 64);
        Int4Block &sent = group.sent[k], &error = group.error[k];
        if (word == 0 || word == kInt4NaN)
          pack_nothing(sent, n, word == 0, to, next, error);
        else
          pack_and_compare(sent, n, scales.scale + lane, scales.inverse + lane, to, next, error);
      }
      group.largest[e] = next.largest();
    }
  }

  SIMD_FN void store_next(int64_t b, int64_t blocks, const FeedbackGroup& group) const {
    for (int64_t k = 0; k < blocks; ++k) {
      const int64_t e = (b + k) / kPerError;
      const float scale = group.error_scale[k / kPerError];
      std::memcpy(feedback_.next + e * kErrorScale, &scale, sizeof scale);
      std::byte* const to = feedback_.next + error_blocks(n_) * kErrorScale + (b + k) * kInt4Block;
      hwy::Prefetch(to + kCodesAhead);
      hwy::Prefetch(to + kCodesAhead + 64);
      store_errors(group.error[k], size(b + k), scale, to);
    }
  }

  const Feedback feedback_;
  const int64_t n_;
  std::byte* const packed_;
  const std::byte* const read_;  // the codes of the errors before, if any
};

template <class Values>
SIMD_FN void pack_with_errors(const Feedback& feedback, const Values& values, int64_t n,
                              std::byte* packed, int64_t begin, int64_t end) {
  if (feedback.loss_scale == 1)
    FeedbackPacker<false>(feedback, n, packed).pack(values, begin, end);
  else
    FeedbackPacker<true>(feedback, n, packed).pack(values, begin, end);
}

void quantize_with_errors(DType dtype, const void* x, int64_t n, const Feedback& feedback,
                          std::byte* packed, int64_t begin, int64_t end) {
  with_type(dtype, [=, &feedback](auto t) SIMD_INLINE {
    const auto values = [=](int64_t b, int64_t blocks, const auto& f) SIMD_INLINE {
      SIMD_UNROLL
      for (int64_t k = 0; k < kGroup; ++k) {
        if (k >= blocks) return;
        const auto* const from = static_cast<const decltype(t)*>(x) + (b + k) * kInt4Block;
        fetch_ahead(from);
        Int4Block block;
        load_block(from, std::min(kInt4Block, n - (b + k) * kInt4Block), block);
        f(k, block);
      }
    };
    pack_with_errors(feedback, values, n, packed, begin, end);
  });
}

void requantize_with_errors(const PackedParts& parts, const Feedback& feedback, std::byte* packed,
                            int64_t begin, int64_t end) {
  const auto values = [&](int64_t b, int64_t blocks, const auto& f)
                          SIMD_INLINE { sum_group(parts, b, blocks, f); };
  pack_with_errors(feedback, values, parts.n, packed, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

namespace {

constexpr int64_t kErrorGrain = kFlatGrain / kQuantizedBlock;

// Returns the errors of part `part` of n values in a call.
Feedback feedback_of(const KernelCall& call, const Int4Attrs& attrs, int64_t part) {
  const int64_t at = part * quantized_bytes(attrs.part);
  std::byte* const next = data<std::byte>(call.out, 1) + at;
  const bool anew = call.state->applied_steps % attrs.error_steps == 0;
  const std::byte* error = anew ? nullptr : data<const std::byte>(call.in, 1) + at;
  return {call.accumulate ? next : error, next, attrs.error_beta, call.state->loss_scale};
}

}  // namespace

std::unique_ptr<Kernel> make_quantize_int4_with_errors(const KernelSpec& spec) {
  const auto attrs = attrs_as<Int4Attrs>(spec.attrs);
  return kernel_of([attrs, threads = spec.threads, parts = elements(spec.in[0]) / attrs.part,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    const auto* x = data<const std::byte>(call.in, 0);
    auto* packed = data<std::byte>(call.out, 0);
    const int64_t n = attrs.part;
    for_parts(threads, parts, error_blocks(n), kErrorGrain,
              [&](int64_t part, int64_t begin, int64_t end) {
                const int64_t to = packed_place(part, parts, attrs.group);
                DSTRAIN_BEST(quantize_with_errors)
                (dtype, x + part * n * size_of(dtype), n, feedback_of(call, attrs, part),
                 packed + to * int4_bytes(n), begin, end);
              });
  });
}

std::unique_ptr<Kernel> make_requantize_int4_with_errors(const KernelSpec& spec) {
  return kernel_of([attrs = attrs_as<Int4Attrs>(spec.attrs), threads = spec.threads,
                    senders = spec.in[0].shape[0],
                    sums = spec.in[0].shape[1]](const KernelCall& call) {
    const auto* packed = data<const std::byte>(call.in, 0);
    auto* out = data<std::byte>(call.out, 0);
    const int64_t n = attrs.part;
    for_parts(threads, sums, error_blocks(n), kErrorGrain,
              [&](int64_t part, int64_t begin, int64_t end) {
                DSTRAIN_BEST(requantize_with_errors)
                (parts_of_sum(packed, senders, sums, n, part), feedback_of(call, attrs, part),
                 out + part * int4_bytes(n), begin, end);
              });
  });
}

}  // namespace dstrain::simd
#endif
