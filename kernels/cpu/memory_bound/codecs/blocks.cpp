// unpack_weight (runtime/core/blocks/weight_blocks.h): code * scale in f32, rounded once, so it has the bits of
// unpack_groups on every instruction set. Minimum memory traffic, bytes per value of s bytes: s + 1.0625 (int8),
// s + 0.5625 (nf4).
#include <cstring>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/core/blocks/weight_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/codecs/blocks.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/codecs/int8-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kScalesOfGroup = kWeightGroup / kWeightBlock;

struct Int8Codes {
  static constexpr BlockFormat kFormat = BlockFormat::int8;
  // Returns the 16 codes from value i of a group on.
  SIMD_FN static Pack load(const std::byte* codes, int64_t i) {
    return load_codes(reinterpret_cast<const int8_t*>(codes) + i);
  }
};

// Returns the levels of the codes in the lowest four bits of each lane.
SIMD_FN hn::Vec<DF> nf4_levels(hn::Vec<DU> codes) {
#if HWY_TARGET == HWY_AVX3
  return hn::TableLookupLanes(hn::LoadU(DF(), kNf4Levels.data()),
                              hn::IndicesFromVec(DF(), hn::BitCast(DI(), codes)));
#elif HWY_TARGET == HWY_AVX2
  const auto of_half = hn::And(codes, hn::Set(DU(), 7));
  const auto at = hn::IndicesFromVec(DF(), hn::BitCast(DI(), of_half));
  const auto low = hn::TableLookupLanes(hn::LoadU(DF(), kNf4Levels.data()), at);
  const auto high = hn::TableLookupLanes(hn::LoadU(DF(), kNf4Levels.data() + kLanes), at);
  return hn::IfThenElse(hn::RebindMask(DF(), hn::Gt(codes, hn::Set(DU(), 7))), high, low);
#else
  return hn::Set(DF(), kNf4Levels[hn::GetLane(codes)]);
#endif
}

struct Nf4Codes {
  static constexpr BlockFormat kFormat = BlockFormat::nf4;
  // Returns the 16 levels from value i of a group on. Their codes are two words, from the lowest bits of the first up.
  SIMD_FN static Pack load(const std::byte* codes, int64_t i) {
    uint32_t words[2];
    std::memcpy(words, codes + i / 2, sizeof words);
    const auto bits = hn::Set(DU(), 15);
    Pack r;
#if HWY_TARGET == HWY_AVX3
    const auto shifts = hn::ShiftLeft<2>(hn::And(hn::Iota(DU(), 0), hn::Set(DU(), 7)));
    const auto both =
        hn::IfThenElse(hn::FirstN(DU(), 8), hn::Set(DU(), words[0]), hn::Set(DU(), words[1]));
    r.v[0] = nf4_levels(hn::And(hn::Shr(both, shifts), bits));
#elif HWY_TARGET == HWY_AVX2
    const auto shifts = hn::ShiftLeft<2>(hn::Iota(DU(), 0));
    for (int k = 0; k < kParts; ++k)
      r.v[k] = nf4_levels(hn::And(hn::Shr(hn::Set(DU(), words[k]), shifts), bits));
#else
    for (int k = 0; k < kPack; ++k)
      r.v[k] = nf4_levels(hn::And(hn::Set(DU(), words[k / 8] >> (k % 8 * 4)), bits));
#endif
    return r;
  }
};

// Writes the first `count` values of a group.
template <class Codes, class T>
SIMD_FN void unpack_group(const std::byte* group, int64_t count, T* y) {
  const std::byte* const codes = group + kWeightScales;
  for (int64_t b = 0; b < kScalesOfGroup && b * kWeightBlock < count; ++b) {
    float value;
    std::memcpy(&value, group + b * int64_t{sizeof value}, sizeof value);
    const Pack scale = all(value);
    const int64_t first = b * kWeightBlock;
    for_packs(first, std::min(first + kWeightBlock, count), [=](int64_t i, auto lanes) SIMD_INLINE {
      store(Codes::load(codes, i) * scale, y + i, lanes);
    });
  }
}

template <class Codes>
SIMD_FN void unpack_format(DType dtype, const std::byte* packed, int64_t n, void* y, int64_t begin,
                           int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    auto* const to = static_cast<decltype(t)*>(y);
    for (int64_t g = begin; g < end; ++g) {
      const int64_t first = g * kWeightGroup;
      unpack_group<Codes>(packed + g * group_bytes(Codes::kFormat),
                          std::min(kWeightGroup, n - first), to + first);
    }
  });
}

// Unpacks the groups [begin, end) of a tensor of n values.
void unpack_weight_groups(BlockFormat format, DType dtype, const std::byte* packed, int64_t n,
                          void* y, int64_t begin, int64_t end) {
  if (format == BlockFormat::int8)
    unpack_format<Int8Codes>(dtype, packed, n, y, begin, end);
  else
    unpack_format<Nf4Codes>(dtype, packed, n, y, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_unpack_weight(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]), dtype = spec.out[0].dtype,
                    format = attrs_as<UnpackAttrs>(spec.attrs).format](const KernelCall& call) {
    parallel_ranges(threads, (n + kWeightGroup - 1) / kWeightGroup, kFlatGrain / kWeightGroup,
                    [&](int64_t begin, int64_t end) {
                      DSTRAIN_BEST(unpack_weight_groups)
                      (format, dtype, data<const std::byte>(call.in, 0), n, data(call.out, 0),
                       begin, end);
                    });
  });
}

}  // namespace dstrain::simd
#endif
