// quantize_int4, requantize_int4 and sum_int4 (runtime/ir/quantized.h). A code times its bf16 scale is exact in f32, so
// that a sum of several is rounded by its additions alone, in the order of the packed parts.
// Minimum memory traffic, bytes per element of s bytes: quantize_int4 s + 0.53; of K parts that are added, 0.53 K and
// 0.53 or s for the sum.
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"
#include "runtime/ir/quantized.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/codecs/int4.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/pack-inl.h"

#ifndef DSTRAIN_SIMD_INT4_ONCE
#define DSTRAIN_SIMD_INT4_ONCE
namespace dstrain::simd {
namespace {

constexpr int64_t kScale = sizeof(uint16_t), kBlockBytes = kInt4Block / 2;

int64_t int4_blocks(int64_t n) {
  return (n + kInt4Block - 1) / kInt4Block;
}

// Packed parts of n values, of which several are added: part k begins at `packed` + k * `stride`.
struct PackedParts {
  const std::byte* packed;
  int64_t count, stride, n;
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// A byte has two neighbouring values. Those of a block are in packs of the first and of the second ones, so that
// neither packing nor adding has to move them.
constexpr int kGroups = static_cast<int>(kBlockBytes) / kPack;
using DByte = hn::Rebind<uint8_t, DF>;

struct Block {
  Pack first[kGroups], second[kGroups];
};

SIMD_FN Block from_floats(const float* x) {
  Block block;
  SIMD_UNROLL
  for (int g = 0; g < kGroups; ++g)
    for (int i = 0; i < kParts; ++i)
      hn::LoadInterleaved2(DF(), x + 2 * (g * kPack + i * kLanes), block.first[g].v[i],
                           block.second[g].v[i]);
  return block;
}

// Loads the first n values of a block; the others are 0.
template <class T>
SIMD_FN Block load_block(const T* x, int64_t n) {
  alignas(64) float wide[kInt4Block] = {};
  for_packs(0, n,
            [&](int64_t i, auto lanes) SIMD_INLINE { store(load(x + i, lanes), wide + i, lanes); });
  return from_floats(wide);
}
template <>
SIMD_FN Block load_block(const float* x, int64_t n) {
  if (n == kInt4Block) return from_floats(x);
  alignas(64) float wide[kInt4Block] = {};
  std::memcpy(wide, x, static_cast<size_t>(n) * sizeof *x);
  return from_floats(wide);
}
template <>
SIMD_FN Block load_block(const bf16* x, int64_t n) {
  alignas(64) bf16 some[kInt4Block] = {};
  if (n < kInt4Block) {
    std::memcpy(some, x, static_cast<size_t>(n) * sizeof *x);
    x = some;
  }
  Block block;
  SIMD_UNROLL
  for (int g = 0; g < kGroups; ++g)
    for (int i = 0; i < kParts; ++i) {
      const auto two =
          hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(x) + g * kPack + i * kLanes);
      block.first[g].v[i] = hn::BitCast(DF(), hn::ShiftLeft<16>(two));
      block.second[g].v[i] = hn::BitCast(DF(), hn::And(two, hn::Set(DU(), 0xffff0000u)));
    }
  return block;
}

// Packs a block of n values, whose scale goes to `scale` and whose codes to `to`.
SIMD_FN void pack_block(const Block& block, int64_t n, std::byte* scale, std::byte* to) {
  hn::Vec<DI> most = hn::Zero(DI());
  SIMD_UNROLL
  for (int g = 0; g < kGroups; ++g)
    for (int i = 0; i < kParts; ++i) {
      most = hn::Max(most, hn::BitCast(DI(), hn::Abs(block.first[g].v[i])));
      most = hn::Max(most, hn::BitCast(DI(), hn::Abs(block.second[g].v[i])));
    }
  const auto largest = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(DI(), most)));
  const float exact = largest / 7.0f;
  uint32_t bits = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
  if (largest <= std::numeric_limits<float>::max())
    bits = exact < std::numeric_limits<float>::min()
               ? 0
               : (std::bit_cast<uint32_t>(exact) + 0xffffu) & 0xffff0000u;
  const auto stored = static_cast<uint16_t>(bits >> 16);
  std::memcpy(scale, &stored, sizeof stored);
  const int64_t bytes = (n + 1) / 2;
  const auto rounded = std::bit_cast<float>(bits);
  if (!(rounded > 0)) {
    std::memset(to, 0, static_cast<size_t>(bytes));
    return;
  }
  const auto inverse = hn::Set(DF(), 1.0f / rounded);
  const auto nibble = hn::Set(DI(), 15);
  alignas(64) uint8_t last[kBlockBytes];
  auto* out = bytes == kBlockBytes ? reinterpret_cast<uint8_t*>(to) : last;
  SIMD_UNROLL
  for (int g = 0; g < kGroups; ++g)
    for (int i = 0; i < kParts; ++i) {
      const auto low = hn::NearestInt(hn::Mul(block.first[g].v[i], inverse));
      const auto high = hn::NearestInt(hn::Mul(block.second[g].v[i], inverse));
      const auto two = hn::Or(hn::And(low, nibble), hn::ShiftLeft<4>(hn::And(high, nibble)));
      hn::StoreU(hn::DemoteTo(DByte(), two), DByte(), out + g * kPack + i * kLanes);
    }
  if (out == last) std::memcpy(to, last, static_cast<size_t>(bytes));
}

// Returns the values of block b of each part, added in order.
SIMD_FN Block sum_block(const PackedParts& parts, int64_t b) {
  const int64_t blocks = int4_blocks(parts.n);
  const int64_t n = std::min(kInt4Block, parts.n - b * kInt4Block), bytes = (n + 1) / 2;
  Block sum;
  SIMD_UNROLL
  for (int g = 0; g < kGroups; ++g) sum.first[g] = sum.second[g] = all(0);
  alignas(64) uint8_t last[kBlockBytes] = {};
  for (int64_t part = 0; part < parts.count; ++part) {
    const std::byte* packed = parts.packed + part * parts.stride;
    uint16_t scale;
    std::memcpy(&scale, packed + b * kScale, sizeof scale);
    const auto* from = reinterpret_cast<const uint8_t*>(packed + blocks * kScale + b * kBlockBytes);
    if (bytes < kBlockBytes) {
      std::memcpy(last, from, static_cast<size_t>(bytes));
      from = last;
    }
    // The product is exact, so that a fused sum has the bits of one that is not.
    const auto step = hn::Set(DF(), std::bit_cast<float>(uint32_t{scale} << 16));
    SIMD_UNROLL
    for (int g = 0; g < kGroups; ++g)
      for (int i = 0; i < kParts; ++i) {
        const auto two = hn::PromoteTo(DI(), hn::LoadU(DByte(), from + g * kPack + i * kLanes));
        const auto low = hn::ShiftRight<28>(hn::ShiftLeft<28>(two));
        const auto high = hn::ShiftRight<28>(hn::ShiftLeft<24>(two));
        auto& first = sum.first[g].v[i];
        auto& second = sum.second[g].v[i];
        first = hn::MulAdd(hn::ConvertTo(DF(), low), step, first);
        second = hn::MulAdd(hn::ConvertTo(DF(), high), step, second);
      }
  }
  return sum;
}

SIMD_FN void to_floats(const Block& block, float* x) {
  SIMD_UNROLL
  for (int g = 0; g < kGroups; ++g)
    for (int i = 0; i < kParts; ++i)
      hn::StoreInterleaved2(block.first[g].v[i], block.second[g].v[i], DF(),
                            x + 2 * (g * kPack + i * kLanes));
}

void quantize_int4_blocks(DType dtype, const void* x, int64_t n, std::byte* packed, int64_t begin,
                          int64_t end) {
  std::byte* const codes = packed + int4_blocks(n) * kScale;
  with_type(dtype, [=](auto t) SIMD_INLINE {
    const auto* from = static_cast<const decltype(t)*>(x);
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kInt4Block, here = std::min(kInt4Block, n - first);
      pack_block(load_block(from + first, here), here, packed + b * kScale,
                 codes + b * kBlockBytes);
    }
  });
}

void requantize_int4_blocks(const PackedParts& parts, std::byte* packed, int64_t begin,
                            int64_t end) {
  std::byte* const codes = packed + int4_blocks(parts.n) * kScale;
  for (int64_t b = begin; b < end; ++b)
    pack_block(sum_block(parts, b), std::min(kInt4Block, parts.n - b * kInt4Block),
               packed + b * kScale, codes + b * kBlockBytes);
}

void sum_int4_blocks(const PackedParts& parts, DType dtype, void* y, bool accumulate, int64_t begin,
                     int64_t end) {
  with_type(dtype, [=, &parts](auto t) SIMD_INLINE {
    for (int64_t b = begin; b < end; ++b) {
      alignas(64) float sums[kInt4Block];
      to_floats(sum_block(parts, b), sums);
      auto* to = static_cast<decltype(t)*>(y) + b * kInt4Block;
      for_packs(0, std::min(kInt4Block, parts.n - b * kInt4Block),
                [&](int64_t i, auto lanes) SIMD_INLINE {
                  const Pack sum = load(sums + i, lanes);
                  store(accumulate ? load(to + i, lanes) + sum : sum, to + i, lanes);
                });
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
HWY_EXPORT(quantize_int4_blocks);
HWY_EXPORT(requantize_int4_blocks);
HWY_EXPORT(sum_int4_blocks);

namespace {
constexpr int64_t kGrain = kFlatGrain / kInt4Block;
}  // namespace

std::unique_ptr<Kernel> make_quantize_int4(const KernelSpec& spec) {
  const auto attrs = attrs_as<Int4Attrs>(spec.attrs);
  return kernel_of([attrs, threads = spec.threads, parts = elements(spec.in[0]) / attrs.part,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    const auto* x = data<const std::byte>(call.in, 0);
    auto* packed = data<std::byte>(call.out, 0);
    const int64_t n = attrs.part, in_group = parts / attrs.group;
    for_parts(threads, parts, int4_blocks(n), kGrain,
              [&](int64_t part, int64_t begin, int64_t end) {
                const int64_t to = part % attrs.group * in_group + part / attrs.group;
                HWY_DYNAMIC_DISPATCH(quantize_int4_blocks)
                (dtype, x + part * n * size_of(dtype), n, packed + to * int4_bytes(n), begin, end);
              });
  });
}

std::unique_ptr<Kernel> make_requantize_int4(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = attrs_as<Int4Attrs>(spec.attrs).part,
                    senders = spec.in[0].shape[0],
                    sums = spec.in[0].shape[1]](const KernelCall& call) {
    const auto* packed = data<const std::byte>(call.in, 0);
    auto* out = data<std::byte>(call.out, 0);
    for_parts(threads, sums, int4_blocks(n), kGrain, [&](int64_t part, int64_t begin, int64_t end) {
      const int64_t at = part * int4_bytes(n);
      const PackedParts parts{packed + at, senders, sums * int4_bytes(n), n};
      HWY_DYNAMIC_DISPATCH(requantize_int4_blocks)(parts, out + at, begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_sum_int4(const KernelSpec& spec) {
  const auto attrs = attrs_as<Int4Attrs>(spec.attrs);
  const Shape shape = spec.in[0].shape;
  return kernel_of([attrs, threads = spec.threads, senders = shape.rank == 3 ? shape[0] : 1,
                    sums = shape[-2], wanted = elements(spec.out[0]) / attrs.part,
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    const auto* packed = data<const std::byte>(call.in, 0);
    auto* y = data<std::byte>(call.out, 0);
    const int64_t n = attrs.part;
    for_parts(threads, wanted, int4_blocks(n), kGrain,
              [&](int64_t part, int64_t begin, int64_t end) {
                const PackedParts parts{packed + (attrs.first + part) * int4_bytes(n), senders,
                                        sums * int4_bytes(n), n};
                HWY_DYNAMIC_DISPATCH(sum_int4_blocks)
                (parts, dtype, y + part * n * size_of(dtype), call.accumulate, begin, end);
              });
  });
}

}  // namespace dstrain::simd
#endif
