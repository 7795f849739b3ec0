// quantize_int4, requantize_int4 and sum_int4 (runtime/ir/quantized.h). A code times its scale is exact in f32, so
// that a sum of several is rounded by its additions alone, in the order of the packed parts.
// Minimum memory traffic, bytes per element of s bytes: quantize_int4 s + 0.53; of K parts that are added, 0.53 K and
// 0.53 or s for the sum.
#include <cstring>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/codecs/int4.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/codecs/int4_pack-inl.h"
#include "kernels/cpu/memory_bound/codecs/int4_sum-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// n values in memory.
template <class T>
struct StoredValues {
  const T* x;
  int64_t n, whole = n / kInt4Block;

  template <class F>
  SIMD_FN void look(int64_t first, int64_t blocks, const F& f) const {
    SIMD_UNROLL
    for (int64_t k = 0; k < kGroup; ++k) {
      Int4Block block;
      load(first + std::min(k, blocks - 1), block);
      f(k, block);
    }
  }
  SIMD_FN void load(int64_t b, Int4Block& block) const {
    if (b < whole)
      load_block(x + b * kInt4Block, kInt4Block, block);
    else
      load_block(x + b * kInt4Block, n - b * kInt4Block, block);
  }
  SIMD_FN void fetch(int64_t b) const { fetch_ahead(x + b * kInt4Block); }
};

void quantize_int4_blocks(DType dtype, const void* x, int64_t n, std::byte* packed, int64_t begin,
                          int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    StoredValues<decltype(t)> values{static_cast<const decltype(t)*>(x), n};
    pack_blocks(values, begin, end, n, packed);
  });
}

// The sums of the values of packed parts.
struct PartSums {
  const PackedParts& parts;
  Int4Block sums[2 * kGroup];

  SIMD_FN Int4Block& at(int64_t b) { return sums[static_cast<uint64_t>(b) % (2 * kGroup)]; }
  template <class F>
  SIMD_FN void look(int64_t b, int64_t blocks, const F& f) {
    sum_group(parts, b, blocks, [&](int64_t k, const Int4Block& sum) SIMD_INLINE {
      at(b + k) = sum;
      f(k, sum);
    });
    for (int64_t k = blocks; k < kGroup; ++k) f(k, at(b));
  }
  SIMD_FN void load(int64_t b, Int4Block& block) { block = at(b); }
  SIMD_FN void fetch(int64_t) const {}
};

void requantize_int4_blocks(const PackedParts& parts, std::byte* packed, int64_t begin,
                            int64_t end) {
  PartSums sums{parts, {}};
  pack_blocks(sums, begin, end, parts.n, packed);
}

void sum_int4_blocks(const PackedParts& parts, DType dtype, void* y, bool accumulate, int64_t begin,
                     int64_t end) {
  with_type(dtype, [=, &parts](auto t) SIMD_INLINE {
    for (int64_t b = begin; b < end; b += kGroup)
      sum_group(parts, b, std::min<int64_t>(kGroup, end - b),
                [=](int64_t k, Int4Block& sum) SIMD_INLINE {
                  const int64_t first = (b + k) * kInt4Block;
                  const int64_t n = std::min(kInt4Block, parts.n - first);
                  auto* to = static_cast<decltype(t)*>(y) + first;
                  fetch_ahead(to);
                  if (accumulate) {
                    Int4Block before;
                    load_block(to, n, before);
                    add_block(before, sum);
                  }
                  store_block(sum, to, n);
                });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

namespace {
constexpr int64_t kGrain = kFlatGrain / kInt4Block;
}  // namespace

std::unique_ptr<Kernel> make_quantize_int4(const KernelSpec& spec) {
  if (spec.in.size() > 1) return make_quantize_int4_with_errors(spec);
  const auto attrs = attrs_as<Int4Attrs>(spec.attrs);
  return kernel_of([attrs, threads = spec.threads, parts = elements(spec.in[0]) / attrs.part,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    const auto* x = data<const std::byte>(call.in, 0);
    auto* packed = data<std::byte>(call.out, 0);
    const int64_t n = attrs.part;
    for_parts(threads, parts, int4_blocks(n), kGrain,
              [&](int64_t part, int64_t begin, int64_t end) {
                const int64_t to = packed_place(part, parts, attrs.group);
                DSTRAIN_BEST(quantize_int4_blocks)
                (dtype, x + part * n * size_of(dtype), n, packed + to * int4_bytes(n), begin, end);
              });
  });
}

std::unique_ptr<Kernel> make_requantize_int4(const KernelSpec& spec) {
  if (spec.in.size() > 1) return make_requantize_int4_with_errors(spec);
  return kernel_of([threads = spec.threads, n = attrs_as<Int4Attrs>(spec.attrs).part,
                    senders = spec.in[0].shape[0],
                    sums = spec.in[0].shape[1]](const KernelCall& call) {
    const auto* packed = data<const std::byte>(call.in, 0);
    auto* out = data<std::byte>(call.out, 0);
    for_parts(threads, sums, int4_blocks(n), kGrain, [&](int64_t part, int64_t begin, int64_t end) {
      DSTRAIN_BEST(requantize_int4_blocks)
      (parts_of_sum(packed, senders, sums, n, part), out + part * int4_bytes(n), begin, end);
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
                DSTRAIN_BEST(sum_int4_blocks)
                (parts_of_sum(packed, senders, sums, n, attrs.first + part), dtype,
                 y + part * n * size_of(dtype), call.accumulate, begin, end);
              });
  });
}

}  // namespace dstrain::simd
#endif
