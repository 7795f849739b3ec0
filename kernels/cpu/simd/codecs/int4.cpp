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

constexpr int kPacks = static_cast<int>(kInt4Block) / kPack;
using DCode = hn::Rebind<int8_t, DF>;
using DByte = hn::CappedTag<uint8_t, 32>;
constexpr int kBytes = static_cast<int>(hn::MaxLanes(DByte()));

// The values of a block.
struct Block {
  Pack v[kPacks];
};

// Loads the first n values of a block; the others are 0.
template <class T>
SIMD_FN Block load_block(const T* x, int64_t n) {
  Block block;
  SIMD_UNROLL
  for (int k = 0; k < kPacks; ++k) {
    const auto here = static_cast<int>(n) - k * kPack;
    block.v[k] = here >= kPack ? load(x + k * kPack)
                 : here > 0    ? load(x + k * kPack, First{here})
                               : all(0);
  }
  return block;
}

// Packs a block of n values, whose scale goes to `scale` and whose codes to `to`.
SIMD_FN void pack_block(const Block& block, int64_t n, std::byte* scale, std::byte* to) {
  hn::Vec<DI> most = hn::Zero(DI());
  SIMD_UNROLL
  for (int k = 0; k < kPacks; ++k)
    for (int i = 0; i < kParts; ++i)
      most = hn::Max(most, hn::BitCast(DI(), hn::Abs(block.v[k].v[i])));
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
  const Pack inverse = all(1.0f / rounded);
  alignas(64) uint8_t codes[kInt4Block], packed[kBlockBytes];
  SIMD_UNROLL
  for (int k = 0; k < kPacks; ++k) {
    const Pack scaled = block.v[k] * inverse;
    SIMD_UNROLL
    for (int i = 0; i < kParts; ++i)
      hn::StoreU(hn::DemoteTo(DCode(), hn::NearestInt(scaled.v[i])), DCode(),
                 reinterpret_cast<int8_t*>(codes) + k * kPack + i * kLanes);
  }
  auto* out = bytes == kBlockBytes ? reinterpret_cast<uint8_t*>(to) : packed;
  for (int i = 0; i < kBlockBytes; i += kBytes) {
    hn::Vec<DByte> low, high;
    hn::LoadInterleaved2(DByte(), codes + 2 * i, low, high);
    hn::StoreU(hn::Or(hn::And(low, hn::Set(DByte(), 15)), hn::ShiftLeft<4>(high)), DByte(),
               out + i);
  }
  if (out == packed) std::memcpy(to, packed, static_cast<size_t>(bytes));
}

// Returns the values of block b of each part, added in order.
SIMD_FN Block sum_block(const PackedParts& parts, int64_t b) {
  const int64_t blocks = int4_blocks(parts.n);
  const int64_t n = std::min(kInt4Block, parts.n - b * kInt4Block), bytes = (n + 1) / 2;
  Block sum;
  SIMD_UNROLL
  for (int k = 0; k < kPacks; ++k) sum.v[k] = all(0);
  alignas(64) uint8_t codes[kInt4Block], last[kBlockBytes] = {};
  for (int64_t part = 0; part < parts.count; ++part) {
    const std::byte* packed = parts.packed + part * parts.stride;
    uint16_t scale;
    std::memcpy(&scale, packed + b * kScale, sizeof scale);
    const auto* from = reinterpret_cast<const uint8_t*>(packed + blocks * kScale + b * kBlockBytes);
    if (bytes < kBlockBytes) {
      std::memcpy(last, from, static_cast<size_t>(bytes));
      from = last;
    }
    const auto nibble = hn::Set(DByte(), 15), sign = hn::Set(DByte(), 8);
    for (int i = 0; i < kBlockBytes; i += kBytes) {
      const auto two = hn::LoadU(DByte(), from + i);
      const auto low = hn::Sub(hn::Xor(hn::And(two, nibble), sign), sign);
      const auto high = hn::Sub(hn::Xor(hn::ShiftRight<4>(two), sign), sign);
      hn::StoreInterleaved2(low, high, DByte(), codes + 2 * i);
    }
    const Pack step = all(std::bit_cast<float>(uint32_t{scale} << 16));
    SIMD_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      Pack values;
      SIMD_UNROLL
      for (int i = 0; i < kParts; ++i)
        values.v[i] = hn::ConvertTo(
            DF(), hn::PromoteTo(DI(), hn::LoadU(DCode(), reinterpret_cast<const int8_t*>(codes) +
                                                             k * kPack + i * kLanes)));
      sum.v[k] = sum.v[k] + values * step;
    }
  }
  return sum;
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
      const Block sum = sum_block(parts, b);
      auto* to = static_cast<decltype(t)*>(y) + b * kInt4Block;
      const int64_t n = std::min(kInt4Block, parts.n - b * kInt4Block);
      for (int k = 0; k < kPacks && k * kPack < n; ++k) {
        auto* const here = to + k * kPack;
        for_packs(0, std::min<int64_t>(kPack, n - k * kPack), [&](int64_t, auto lanes) SIMD_INLINE {
          store(accumulate ? load(here, lanes) + sum.v[k] : sum.v[k], here, lanes);
        });
      }
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
  return kernel_of([attrs, threads = spec.threads, senders = spec.in[0].shape[0],
                    sums = spec.in[0].shape[1], wanted = elements(spec.out[0]) / attrs.part,
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
