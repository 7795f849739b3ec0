// quantize_signs, requantize_signs and dequantize_signs (runtime/ir/quantized.h). What a block loses is its error,
// which is added to its values the next time; with state->drop_errors it counts as 0. They do nothing to errors and
// values if state->skip is set; what is packed then is zeros. Minimum memory traffic, bytes per element: quantize_signs
// 12.13 (reads x and error, writes error), 10.13 where x has 16 bits, of K senders requantize_signs 8.13 + 0.13 K,
// dequantize_signs 4.13.
#include <cstring>

#include "hwy/cache_control.h"
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/ir/quantized.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/codecs/signs.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/codecs/bits-inl.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_SIGNS_ONCE
#define DSTRAIN_SIMD_SIGNS_ONCE
namespace dstrain::simd {
namespace {

constexpr int64_t kSignScale = sizeof(float), kPackBytes = 2;
constexpr int kRun = 4;  // packs that are added together
// How far in front of what is in use memory is asked for: elements of errors, bytes of signs.
constexpr int64_t kErrorsAhead = 4096, kSignsAhead = 512;

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

// Returns -scale in the lanes whose bit is set, scale in the others.
SIMD_FN Pack signed_scale(uint32_t bits, Pack scale) {
  const Mask negative = mask_of(bits);
  Pack r;
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i)
    r.v[i] = hn::IfThenElse(negative.v[i], hn::Neg(scale.v[i]), scale.v[i]);
  return r;
}

// Packs the block's values, and writes what is lost of them to `error`. The lanes of `values` beyond its end are 0.
SIMD_FN void pack_signs(const SignBlock<std::byte>& block, const float* values, float* error) {
  Pack even = all(0), odd = all(0);
  int64_t packs = (block.count + kPack - 1) / kPack;
  const float* from = values;
  for (; packs >= 2; packs -= 2, from += 2 * kPack) {
    even = even + absolute(load(from));
    odd = odd + absolute(load(from + kPack));
  }
  if (packs == 1) even = even + absolute(load(from));
  const float scale = sum(even + odd) / static_cast<float>(block.count);
  std::memcpy(block.scale, &scale, sizeof scale);
  for_packs(0, block.count, [&](int64_t i, auto lanes) SIMD_INLINE {
    const Pack v = load(values + i);
    const uint32_t bits = bits_of(less(v, all(0)));
    store_bits(bits, block.signs + i / 8, lanes);
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

// Sets `sums` to the sums of packs from element i of a block on, added in the order of the parts. `first` is the block
// of the first part.
template <class Lanes, int packs>
SIMD_FN void add_signs(const SignParts& parts, const SignBlock<const std::byte>& first, int64_t i,
                       Lanes lanes, Pack (&sums)[packs]) {
  SIMD_UNROLL
  for (int k = 0; k < packs; ++k) sums[k] = all(0);
  const std::byte *scales = first.scale, *signs = first.signs + i / 8;
  const int64_t stride = sign_bytes(parts.n);
  for (int64_t part = 0; part < parts.count; ++part, scales += stride, signs += stride) {
    float scale;
    std::memcpy(&scale, scales, sizeof scale);
    SIMD_UNROLL
    for (int k = 0; k < packs; ++k)
      sums[k] = sums[k] + signed_scale(load_bits(signs + k * kPackBytes, lanes), all(scale));
  }
}

void requantize_sign_blocks(const SignParts& parts, float* error, bool drop_error,
                            std::byte* packed, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const SignBlock block(packed, parts.n, b);
    alignas(64) float values[kSignBlock];
    const SignBlock first(parts.packed, parts.n, b);
    float* const lost = error + block.first;
    for (int64_t k = 0; k < parts.count; ++k)
      hwy::Prefetch(first.signs + k * sign_bytes(parts.n) + kSignsAhead);
    int64_t i = 0;
    for (; i + kRun * kPack <= block.count; i += kRun * kPack) {
      hwy::Prefetch(lost + i + kErrorsAhead);
      hwy::Prefetch(lost + i + kErrorsAhead + kPack);
      hwy::Prefetch(lost + i + kErrorsAhead + 2 * kPack);
      hwy::Prefetch(lost + i + kErrorsAhead + 3 * kPack);
      Pack sums[kRun];
      add_signs(parts, first, i, Full{}, sums);
      SIMD_UNROLL
      for (int k = 0; k < kRun; ++k)
        store(sums[k] + load_error(lost + i + k * kPack, drop_error, Full{}),
              values + i + k * kPack);
    }
    for_packs(i, block.count, [&](int64_t at, auto lanes) SIMD_INLINE {
      Pack sum[1];
      add_signs(parts, first, at, lanes, sum);
      store(keep(lanes, sum[0] + load_error(lost + at, drop_error, lanes)), values + at);
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
      store(signed_scale(load_bits(block.signs + i / 8, lanes), scale), y + block.first + i, lanes);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

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
                DSTRAIN_BEST(quantize_sign_blocks)
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
      DSTRAIN_BEST(requantize_sign_blocks)
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
                    DSTRAIN_BEST(dequantize_sign_blocks)
                    (packed + part * sign_bytes(n), n, y + part * n, begin, end);
                  });
      });
}

}  // namespace dstrain::simd
#endif
