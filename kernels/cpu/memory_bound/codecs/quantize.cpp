// quantize and dequantize (runtime/ir/quantized.h). Magnitudes are compared as integers, so that an inf or a NaN of a
// block is always found, and a value is multiplied by the inverse of its block's scale.
// Minimum memory traffic, bytes per element of s bytes: s + 1.016 each; a block stays in the first-level cache between
// its passes.
#include <cstring>

#include "hwy/cache_control.h"
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/ir/quantized.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/codecs/quantize.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/codecs/int8-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kAhead = 8192;  // bytes

void quantize_blocks(DType dtype, const void* x, int64_t n, std::byte* packed, int64_t begin,
                     int64_t end) {
  const int64_t blocks = (n + kQuantizedBlock - 1) / kQuantizedBlock;
  auto* codes = reinterpret_cast<int8_t*>(packed + blocks * int64_t{sizeof(float)});
  with_type(dtype, [=](auto t) SIMD_INLINE {
    const auto* const values = static_cast<const decltype(t)*>(x);
    const auto count = [=](int64_t b) SIMD_INLINE {
      return std::min(kQuantizedBlock, n - b * kQuantizedBlock);
    };
    const auto scale_of = [=](int64_t b) SIMD_INLINE {
      const auto* const from = values + b * kQuantizedBlock;
      // The processor asks for what the next blocks read too late by itself.
      const auto* const ahead = reinterpret_cast<const std::byte*>(from) + kAhead;
      for (int64_t i = 0; i < kQuantizedBlock * int64_t{sizeof(t)}; i += 64)
        hwy::Prefetch(ahead + i);
      return int8_scale(std::bit_cast<float>(largest_magnitude(from, count(b))));
    };
    // A scale is one long chain of operations, beside which the processor packs the block before.
    float scale = begin < end ? scale_of(begin) : 0;
    for (int64_t b = begin; b < end; ++b) {
      const float next = b + 1 < end ? scale_of(b + 1) : 0;
      const int64_t first = b * kQuantizedBlock;
      pack_int8(values + first, count(b), scale, packed + b * int64_t{sizeof(float)},
                codes + first);
      scale = next;
    }
  });
}

void dequantize_blocks(DType dtype, const std::byte* packed, int64_t n, void* y, int64_t begin,
                       int64_t end) {
  const int64_t blocks = (n + kQuantizedBlock - 1) / kQuantizedBlock;
  const auto* codes = reinterpret_cast<const int8_t*>(packed + blocks * int64_t{sizeof(float)});
  with_type(dtype, [=](auto t) SIMD_INLINE {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kQuantizedBlock, here = std::min(kQuantizedBlock, n - first);
      auto* to = static_cast<decltype(t)*>(y) + first;
      float scale;
      std::memcpy(&scale, packed + b * int64_t{sizeof scale}, sizeof scale);
      const Pack step = all(scale);
      for_packs(0, here, [=](int64_t i, auto lanes) SIMD_INLINE {
        store(load_codes(codes + first + i, lanes) * step, to + i, lanes);
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

namespace {
constexpr int64_t kGrain = kFlatGrain / kQuantizedBlock;

int64_t block_count(int64_t n) {
  return (n + kQuantizedBlock - 1) / kQuantizedBlock;
}
}  // namespace

std::unique_ptr<Kernel> make_quantize(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    parallel_ranges(threads, block_count(n), kGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(quantize_blocks)
      (dtype, data(call.in, 0), n, data<std::byte>(call.out, 0), begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_dequantize(const KernelSpec& spec) {
  const int64_t parts = spec.in[0].shape.rank == 2 ? spec.in[0].shape[0] : 1;
  return kernel_of([parts, threads = spec.threads, n = elements(spec.out[0]) / parts,
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    const auto* packed = data<const std::byte>(call.in, 0);
    auto* y = data<std::byte>(call.out, 0);
    for_parts(
        threads, parts, block_count(n), kGrain, [&](int64_t part, int64_t begin, int64_t end) {
          DSTRAIN_BEST(dequantize_blocks)
          (dtype, packed + part * quantized_bytes(n), n, y + part * n * size_of(dtype), begin, end);
        });
  });
}

}  // namespace dstrain::simd
#endif
