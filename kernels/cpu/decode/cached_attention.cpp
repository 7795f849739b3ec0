// cached_attention. Items are pairs of a row and a head of queries, of which a thread takes every n-th: later positions see
// more keys. Minimum memory traffic of a row: the keys and values that it sees, once for each head of these.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/decode/decode.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "kernels/operands.h"
#include "runtime/ir/slots.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode/cached_attention.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/math-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_DECODE_CACHED_ATTENTION_ONCE
#define DSTRAIN_DECODE_CACHED_ATTENTION_ONCE
namespace dstrain::simd {
namespace {

// Sizes, and where a call's operands are.
struct CachedRows {
  int64_t rows, heads, kv_heads, size;  // size: columns of a head
  int64_t positions;                    // of a slot, in memory
  int64_t window;                       // 0: none
  float scale, softcap;                 // softcap 0: none
  int64_t q_stride, kv_stride;          // from one row to the next
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  const int32_t *documents = nullptr, *slots = nullptr;
  float *y = nullptr, *keys = nullptr, *values = nullptr;

  int64_t position(int64_t row) const { return -int64_t{documents[row]}; }
  // Returns where a head's keys or values in a slot begin.
  int64_t head_of(int64_t slot, int64_t kv_head) const {
    return (slot * kv_heads + kv_head) * positions * size;
  }
  // Writes the keys and values of rows [begin, end) at their positions.
  void write(int64_t begin, int64_t end) const {
    for (int64_t r = begin; r < end; ++r) {
      if (slots[r] < 0) continue;
      const int64_t at = position(r), block = at / kKeyBlock, lane = at % kKeyBlock;
      for (int64_t h = 0; h < kv_heads; ++h) {
        const int64_t head = head_of(slots[r], h);
        float* const key = keys + head + block * kKeyBlock * size + lane;
        for (int64_t d = 0; d < size; ++d) key[d * kKeyBlock] = k[r * kv_stride + h * size + d];
        std::memcpy(values + head + at * size, v + r * kv_stride + h * size,
                    static_cast<size_t>(size) * sizeof(float));
      }
    }
  }
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

static_assert(kPack == kKeyBlock);

// Computes the scores of kBlocks blocks of 16 keys.
template <int kBlocks>
SIMD_FN void score_blocks(const CachedRows& c, const float* q, const float* keys, float* scores) {
  const int64_t block = kPack * c.size;
  Pack sums[kBlocks];
  for (int b = 0; b < kBlocks; ++b) sums[b] = all(0);
  for (int64_t d = 0; d < c.size; ++d) {
    const Pack value = all(q[d]);
    SIMD_UNROLL
    for (int b = 0; b < kBlocks; ++b)
      sums[b] = fma(value, load(keys + b * block + d * kPack), sums[b]);
  }
  for (int b = 0; b < kBlocks; ++b) {
    Pack score = sums[b] * all(c.scale);
    if (c.softcap > 0) score = all(c.softcap) * hyperbolic_tangent(score * all(1.0f / c.softcap));
    store(score, scores + b * kPack);
  }
}

// Adds the values of positions [first, last], each times its weight, in their order.
template <int kPacks, class Lanes>
SIMD_FN void add_values(const float* values, int64_t size, const float* weights, int64_t first,
                        int64_t last, float factor, Lanes lanes, float* y) {
  Pack sums[kPacks];
  for (int i = 0; i < kPacks; ++i) sums[i] = all(0);
  for (int64_t j = first; j <= last; ++j) {
    const Pack weight = all(weights[j]);
    SIMD_UNROLL
    for (int i = 0; i < kPacks; ++i)
      sums[i] = fma(weight, load(values + j * size + i * kPack, lanes), sums[i]);
  }
  for (int i = 0; i < kPacks; ++i) store(sums[i] * all(factor), y + i * kPack, lanes);
}

// Computes y of one row and head. weights: scratch memory for the positions of a slot.
SIMD_FN void attend(const CachedRows& c, int64_t row, int64_t head, float* weights) {
  float* const y = c.y + (row * c.heads + head) * c.size;
  if (c.slots[row] < 0) {
    std::fill_n(y, c.size, 0.0f);
    return;
  }
  const int64_t last = c.position(row),
                first = c.window > 0 ? std::max<int64_t>(0, last - c.window + 1) : 0;
  const int64_t at = c.head_of(c.slots[row], head / (c.heads / c.kv_heads));
  const float* const q = c.q + row * c.q_stride + head * c.size;
  const float *const keys = c.keys + at, *const values = c.values + at;
  const int64_t begin = first / kPack * kPack, end = (last / kPack + 1) * kPack;
  int64_t j = begin;
  for (; j + 4 * kPack <= end; j += 4 * kPack)
    score_blocks<4>(c, q, keys + j * c.size, weights + j);
  for (; j < end; j += kPack) score_blocks<1>(c, q, keys + j * c.size, weights + j);
  const float none = -std::numeric_limits<float>::infinity();
  std::fill(weights + begin, weights + first, none);
  std::fill(weights + last + 1, weights + end, none);
  Pack most = all(none);
  for (j = begin; j < end; j += kPack) most = maximum(most, load(weights + j));
  const Pack top = all(largest(most));
  Pack sums = all(0);
  for (j = begin; j < end; j += kPack) {
    const Pack weight = exponential(load(weights + j) - top);
    store(weight, weights + j);
    sums = sums + weight;
  }
  const float factor = 1.0f / sum(sums);
  int64_t d = 0;
  for (; d + 4 * kPack <= c.size; d += 4 * kPack)
    add_values<4>(values + d, c.size, weights, first, last, factor, Full{}, y + d);
  for_packs(d, c.size, [&](int64_t i, auto lanes) SIMD_INLINE {
    add_values<1>(values + i, c.size, weights, first, last, factor, lanes, y + i);
  });
}

// Computes every `step`-th pair of a row and a head from pair `begin` on.
void attend_items(const CachedRows& c, int64_t begin, int64_t step, float* weights) {
  for (int64_t i = begin; i < c.rows * c.heads; i += step)
    attend(c, i / c.heads, i % c.heads, weights);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

constexpr int64_t kWrittenInline = 16 * 1024;  // elements that one thread writes in less time than
                                               // two need to start

int64_t weights_of(const KernelSpec& spec) {
  return positions_in_memory(attrs_as<AttentionAttrs>(spec.attrs).seq_len);
}

}  // namespace

int64_t cached_attention_workspace(const KernelSpec& spec) {
  return spec.threads * weights_of(spec) * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_cached_attention(const KernelSpec& spec) {
  const auto attrs = attrs_as<AttentionAttrs>(spec.attrs);
  const int64_t width = columns(spec.out[0]), size = width / attrs.heads;
  const int64_t kv_heads = attrs.kv_heads > 0 ? attrs.kv_heads : attrs.heads;
  const bool joined = spec.in.size() == 3;
  const int64_t all = width + 2 * kv_heads * size;
  const double scale = attrs.scale > 0 ? attrs.scale : 1.0 / std::sqrt(static_cast<double>(size));
  const CachedRows shape{.rows = rows(spec.out[0]),
                         .heads = attrs.heads,
                         .kv_heads = kv_heads,
                         .size = size,
                         .positions = weights_of(spec),
                         .window = attrs.window,
                         .scale = static_cast<float>(scale),
                         .softcap = static_cast<float>(attrs.softcap),
                         .q_stride = joined ? all : width,
                         .kv_stride = joined ? all : kv_heads * size};
  return kernel_of([shape, joined, threads = spec.threads](const KernelCall& call) {
    CachedRows c = shape;
    const size_t own = joined ? 1 : 3;
    c.q = data<const float>(call.in, 0);
    c.k = joined ? c.q + c.heads * c.size : data<const float>(call.in, 1);
    c.v = joined ? c.k + c.kv_heads * c.size : data<const float>(call.in, 2);
    c.documents = data<const int32_t>(call.in, own);
    c.slots = data<const int32_t>(call.in, own + 1);
    c.y = data<float>(call.out, 0);
    c.keys = data<float>(call.out, 1);
    c.values = data<float>(call.out, 2);
    auto* const weights = workspace<float>(call, threads * c.positions);
    const int64_t grain = std::max<int64_t>(1, kWrittenInline / (c.kv_heads * c.size));
    parallel_ranges(threads, c.rows, grain,
                    [&](int64_t begin, int64_t end) { c.write(begin, end); });
    const int64_t parts = std::min<int64_t>(threads, c.rows * c.heads);
    run_parts(parts, [&](int64_t part) {
      DSTRAIN_BEST(attend_items)(c, part, parts, weights + part * c.positions);
    });
  });
}

}  // namespace dstrain::simd
#endif
