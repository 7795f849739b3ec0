// quantize_int4 and requantize_int4 with error feedback (runtime/ir/ops/boundary.h). A block of errors, which has
// two of int4, stays in the first-level cache between its passes.
// Minimum memory traffic: that of the ops without (int4.cpp), and 2.03 bytes an element.
#include <cstring>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/codecs/int4_feedback.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/codecs/int4_pack-inl.h"
#include "kernels/cpu/simd/codecs/int4_sum-inl.h"
#include "kernels/cpu/simd/codecs/int8-inl.h"

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

// The values and errors of a block of errors.
struct Chunk {
  alignas(64) float sent[kQuantizedBlock] = {}, error[kQuantizedBlock] = {};
};

// The values of a chunk, whose first block of int4 is `first`.
struct ChunkValues {
  const float* sent;
  int64_t first;

  SIMD_FN void prepare(int64_t, int64_t) const {}
  SIMD_FN void load(int64_t b, Int4Block& block) const {
    from_floats(sent + (b - first) * kInt4Block, block);
  }
  SIMD_FN void fetch(int64_t) const {}
};

// Loads the errors of block b, of n values.
SIMD_FN void load_errors(const Feedback& feedback, int64_t blocks, int64_t b, int64_t n,
                         Chunk& chunk) {
  if (!feedback.error) return;
  constexpr int64_t kScale = sizeof(float);
  float scale;
  std::memcpy(&scale, feedback.error + b * kScale, sizeof scale);
  const auto* codes =
      reinterpret_cast<const int8_t*>(feedback.error + blocks * kScale) + b * kQuantizedBlock;
  for_packs(0, n, [&](int64_t i, auto lanes) SIMD_INLINE {
    store(load_codes(codes + i, lanes) * all(scale), chunk.error + i, lanes);
  });
}

// Adds the errors to the values of block b, of `here` of the part's n values, packs them, and stores the next errors.
SIMD_FN void pack_chunk(const Feedback& feedback, int64_t b, int64_t here, int64_t n, Chunk& chunk,
                        std::byte* packed) {
  constexpr int64_t kScale = sizeof(float), kBlocks = kQuantizedBlock / kInt4Block;
  const Pack up = all(feedback.loss_scale), down = all(1.0f / feedback.loss_scale);
  const Pack stays = all(feedback.beta), taken = all(1.0f - feedback.beta);
  for_packs(0, here, [&](int64_t i, auto lanes) SIMD_INLINE {
    const Pack sent = load(chunk.sent + i, lanes) + load(chunk.error + i, lanes) * up;
    store(sent, chunk.sent + i, lanes);
  });
  const int64_t first = b * kBlocks, blocks = int4_blocks(here);
  ChunkValues values{chunk.sent, first};
  pack_blocks(values, first, first + blocks, n, packed);
  sum_group({packed, 1, 0, n}, first, blocks, [&](int64_t k, const Int4Block& sent) SIMD_INLINE {
    uint32_t word;
    std::memcpy(&word, packed + (first + k) * kInt4Word, sizeof word);
    if (word == kInt4NaN) return;
    alignas(64) float back[kInt4Block];
    to_floats(sent, back);
    const int64_t begin = k * kInt4Block;
    for_packs(begin, std::min(begin + kInt4Block, here), [&](int64_t i, auto lanes) SIMD_INLINE {
      const Pack lost = (load(chunk.sent + i, lanes) - load(back + i - begin, lanes)) * down;
      store(load(chunk.error + i, lanes) * stays + lost * taken, chunk.error + i, lanes);
    });
  });
  const auto largest = std::bit_cast<float>(largest_magnitude(chunk.error, here));
  const bool fits = largest < std::numeric_limits<float>::max() / 2;
  pack_int8(
      chunk.error, here, fits ? int8_scale(largest) : 0.0f, feedback.next + b * kScale,
      reinterpret_cast<int8_t*>(feedback.next + error_blocks(n) * kScale) + b * kQuantizedBlock);
}

void quantize_with_errors(DType dtype, const void* x, int64_t n, const Feedback& feedback,
                          std::byte* packed, int64_t begin, int64_t end) {
  with_type(dtype, [=, &feedback](auto t) SIMD_INLINE {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kQuantizedBlock, here = std::min(kQuantizedBlock, n - first);
      const auto* from = static_cast<const decltype(t)*>(x) + first;
      Chunk chunk;
      load_errors(feedback, error_blocks(n), b, here, chunk);
      for_packs(0, here, [&](int64_t i, auto lanes) SIMD_INLINE {
        store(load(from + i, lanes), chunk.sent + i, lanes);
      });
      pack_chunk(feedback, b, here, n, chunk, packed);
    }
  });
}

void requantize_with_errors(const PackedParts& parts, const Feedback& feedback, std::byte* packed,
                            int64_t begin, int64_t end) {
  constexpr int64_t kBlocks = kQuantizedBlock / kInt4Block;
  for (int64_t b = begin; b < end; ++b) {
    const int64_t here = std::min(kQuantizedBlock, parts.n - b * kQuantizedBlock);
    Chunk chunk;
    load_errors(feedback, error_blocks(parts.n), b, here, chunk);
    sum_group(parts, b * kBlocks, int4_blocks(here),
              [&](int64_t k, const Int4Block& sum)
                  SIMD_INLINE { to_floats(sum, chunk.sent + k * kInt4Block); });
    pack_chunk(feedback, b, here, parts.n, chunk, packed);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
HWY_EXPORT(quantize_with_errors);
HWY_EXPORT(requantize_with_errors);

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
                HWY_DYNAMIC_DISPATCH(quantize_with_errors)
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
                HWY_DYNAMIC_DISPATCH(requantize_with_errors)
                (parts_of_sum(packed, senders, sums, n, part), feedback_of(call, attrs, part),
                 out + part * int4_bytes(n), begin, end);
              });
  });
}

}  // namespace dstrain::simd
#endif
