// quantize_signs, requantize_signs and dequantize_signs (runtime/ir/quantized.h). What a block loses is its error,
// which is added to its values the next time; with state->drop_errors it counts as 0. They do nothing to errors and
// values if state->skip is set; what is packed then is zeros. Minimum memory traffic, bytes per element: quantize_signs
// 12.13 (reads x and error, writes error), 10.13 where x has 16 bits, of K senders requantize_signs 8.13 + 0.13 K,
// dequantize_signs 4.13.
#include <cstring>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"
#include "runtime/ir/quantized.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/codecs/signs.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/pack-inl.h"

#ifndef DSTRAIN_SIMD_SIGNS_ONCE
#define DSTRAIN_SIMD_SIGNS_ONCE
namespace dstrain::simd {
namespace {

constexpr int64_t kSignScale = sizeof(float), kPackBytes = 2;

int64_t sign_blocks(int64_t n) {
  return (n + kSignBlock - 1) / kSignBlock;
}

// One block of a packed part of n values.
template <class Byte>
struct SignBlock {
  Byte* scale;
  Byte* signs;
  int64_t first, count;  // elements

  SignBlock(Byte* packed, int64_t n, int64_t block)
      : scale(packed + block * kSignScale),
        signs(packed + sign_blocks(n) * kSignScale + block * kSignBlock / 8),
        first(block * kSignBlock),
        count(std::min(kSignBlock, n - first)) {}
  float load_scale() const {
    float value;
    std::memcpy(&value, scale, sizeof value);
    return value;
  }
};

// Packed parts of n values, one behind the other, that are added.
struct SignParts {
  const std::byte* packed;
  int64_t count, n;
};

// Values that are packed, times a factor, and what was lost the last time.
struct SignSource {
  const void* x;
  DType dtype;
  float factor;
  float* error;
  bool drop_error;  // it counts as 0
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Bit i: lane i is below 0.
SIMD_FN uint32_t sign_bits(Pack a) {
  const Mask below = less(a, all(0));
  uint32_t bits = 0;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    uint8_t some[8] = {};
    hn::StoreMaskBits(DF(), below.v[i], some);
    bits |= static_cast<uint32_t>(some[0] | some[1] << 8) << (i * kLanes);
  }
  return bits;
}

// Returns -scale in the lanes whose bit is set, scale in the others.
SIMD_FN Pack signed_scale(uint32_t bits, Pack scale) {
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const uint32_t here = bits >> (i * kLanes);
    const uint8_t some[8] = {static_cast<uint8_t>(here), static_cast<uint8_t>(here >> 8)};
    r.v[i] = hn::IfThenElse(hn::LoadMaskBits(DF(), some), hn::Neg(scale.v[i]), scale.v[i]);
  }
  return r;
}

template <class Byte>
SIMD_FN uint32_t load_signs(const SignBlock<Byte>& block, int64_t i) {
  uint16_t bits = 0;
  const int64_t bytes = std::min(kPackBytes, (block.count - i + 7) / 8);
  std::memcpy(&bits, block.signs + i / 8, static_cast<size_t>(bytes));
  return bits;
}

// Packs the block's values, and writes what is lost of them to `error`. The lanes of `values` beyond its end are 0.
SIMD_FN void pack_signs(const SignBlock<std::byte>& block, const float* values, float* error) {
  Pack even = all(0), odd = all(0);
  for_packs(0, block.count, [&](int64_t i, auto) SIMD_INLINE {
    Pack& sum = i / kPack % 2 == 0 ? even : odd;
    sum = sum + absolute(load(values + i));
  });
  const float scale = sum(even + odd) / static_cast<float>(block.count);
  std::memcpy(block.scale, &scale, sizeof scale);
  for_packs(0, block.count, [&](int64_t i, auto lanes) SIMD_INLINE {
    const Pack v = load(values + i);
    const auto bits = static_cast<uint16_t>(sign_bits(v));
    std::memcpy(block.signs + i / 8, &bits, static_cast<size_t>((lanes.n + 7) / 8));
    store(v - signed_scale(bits, all(scale)), error + i, lanes);
  });
}

template <class Lanes>
SIMD_FN Pack load_error(const float* error, bool drop, Lanes lanes) {
  return drop ? all(0) : load(error, lanes);
}

// Packs blocks of a part of n values that begins at element `first` of the source.
void quantize_sign_blocks(const SignSource& from, int64_t first, int64_t n, std::byte* packed,
                          int64_t begin, int64_t end) {
  with_type(from.dtype, [&](auto t) SIMD_INLINE {
    const auto* x = static_cast<const decltype(t)*>(from.x) + first;
    float* const error = from.error + first;
    const Pack factor = all(from.factor);
    for (int64_t b = begin; b < end; ++b) {
      const SignBlock block(packed, n, b);
      alignas(64) float values[kSignBlock];
      for_packs(0, block.count, [&](int64_t i, auto lanes) SIMD_INLINE {
        const int64_t at = block.first + i;
        const Pack lost = load_error(error + at, from.drop_error, lanes);
        store(keep(lanes, fma(factor, load(x + at, lanes), lost)), values + i);
      });
      pack_signs(block, values, error + block.first);
    }
  });
}

void requantize_sign_blocks(const SignParts& parts, float* error, bool drop_error,
                            std::byte* packed, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const SignBlock block(packed, parts.n, b);
    alignas(64) float values[kSignBlock];
    for_packs(0, block.count, [&](int64_t i, auto) SIMD_INLINE { store(all(0), values + i); });
    for (int64_t k = 0; k < parts.count; ++k) {
      const SignBlock from(parts.packed + k * sign_bytes(parts.n), parts.n, b);
      const Pack scale = all(from.load_scale());
      for_packs(0, block.count, [&](int64_t i, auto) SIMD_INLINE {
        store(load(values + i) + signed_scale(load_signs(from, i), scale), values + i);
      });
    }
    for_packs(0, block.count, [&](int64_t i, auto lanes) SIMD_INLINE {
      const Pack lost = load_error(error + block.first + i, drop_error, lanes);
      store(keep(lanes, load(values + i) + lost), values + i);
    });
    pack_signs(block, values, error + block.first);
  }
}

void dequantize_sign_blocks(const std::byte* packed, int64_t n, float* y, int64_t begin,
                            int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const SignBlock block(packed, n, b);
    const Pack scale = all(block.load_scale());
    for_packs(0, block.count, [&](int64_t i, auto lanes) SIMD_INLINE {
      store(signed_scale(load_signs(block, i), scale), y + block.first + i, lanes);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
HWY_EXPORT(quantize_sign_blocks);
HWY_EXPORT(requantize_sign_blocks);
HWY_EXPORT(dequantize_sign_blocks);

namespace {
constexpr int64_t kSignGrain = kFlatGrain / kSignBlock;
}  // namespace

std::unique_ptr<Kernel> make_quantize_signs(const KernelSpec& spec) {
  const int64_t parts = spec.out[0].shape.rank == 2 ? spec.out[0].shape[0] : 1;
  return kernel_of([parts, threads = spec.threads, n = elements(spec.in[0]) / parts,
                    dtype = spec.in[0].dtype,
                    attrs = attrs_as<SignAttrs>(spec.attrs)](const KernelCall& call) {
    const StepState& s = *call.state;
    auto* packed = data<std::byte>(call.out, 0);
    if (s.skip) {
      std::fill_n(packed, parts * sign_bytes(n), std::byte{0});
      return;
    }
    const float factor = (attrs.gradient ? s.grad_scale : 1.0f) / static_cast<float>(attrs.ranks);
    const SignSource from{data(call.in, 0), dtype, factor, data<float>(call.out, 1),
                          s.drop_errors != 0};
    for_parts(threads, parts, sign_blocks(n), kSignGrain,
              [&](int64_t part, int64_t begin, int64_t end) {
                HWY_DYNAMIC_DISPATCH(quantize_sign_blocks)
                (from, part * n, n, packed + part * sign_bytes(n), begin, end);
              });
  });
}

std::unique_ptr<Kernel> make_requantize_signs(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, senders = spec.in[0].shape[0],
                    n = elements(spec.out[1])](const KernelCall& call) {
    auto* packed = data<std::byte>(call.out, 0);
    if (call.state->skip) {
      std::fill_n(packed, sign_bytes(n), std::byte{0});
      return;
    }
    const SignParts parts{data<const std::byte>(call.in, 0), senders, n};
    parallel_ranges(threads, sign_blocks(n), kSignGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(requantize_sign_blocks)
      (parts, data<float>(call.out, 1), call.state->drop_errors != 0, packed, begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_dequantize_signs(const KernelSpec& spec) {
  const int64_t parts = spec.in[0].shape.rank == 2 ? spec.in[0].shape[0] : 1;
  return kernel_of(
      [parts, threads = spec.threads, n = elements(spec.out[0]) / parts](const KernelCall& call) {
        if (call.state->skip) return;
        const auto* packed = data<const std::byte>(call.in, 0);
        auto* y = data<float>(call.out, 0);
        for_parts(threads, parts, sign_blocks(n), kSignGrain,
                  [&](int64_t part, int64_t begin, int64_t end) {
                    HWY_DYNAMIC_DISPATCH(dequantize_sign_blocks)
                    (packed + part * sign_bytes(n), n, y + part * n, begin, end);
                  });
      });
}

}  // namespace dstrain::simd
#endif
