// add_dropout (y = x + dropout(h)) and dropout_grad, by the rule of runtime/core/philox.h. A sample's rows are one
// flat range of elements, divided into spans of 128: 16 Philox blocks, whose 64 words are the 128 sixteen-bit
// numbers of a span in element order. Operands with a part of the rows may begin and end within a span.
// Minimum memory traffic, bytes per element of s bytes: add_dropout 3s, dropout_grad 2s.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/core/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/dropout.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "kernels/cpu/memory_bound/philox-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_DROPOUT_ONCE
#define DSTRAIN_SIMD_DROPOUT_ONCE
namespace dstrain::simd {
namespace {
constexpr int64_t kSpan = 128;

struct Dropout {
  DType dtype;
  DropoutRule rule;
  uint32_t site;
  int64_t sample_elements;  // T * C
  int64_t first, end;  // the operand's elements, numbered through all samples of the micro-batch

  int64_t spans() const { return (sample_elements + kSpan - 1) / kSpan; }  // of a sample
  // Returns the span of an element; spans are numbered through all samples of the micro-batch.
  int64_t span_of(int64_t element) const {
    return element / sample_elements * spans() + element % sample_elements / kSpan;
  }
};
}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// The words of a span. A pack that begins near their end, as in a part of the rows, is loaded from beyond it.
struct SpanWords {
  alignas(64) BlockWords words;
  uint16_t beyond[kPack] = {};
};

// Returns the lanes whose 16 bits are at least the threshold (0 .. 65536).
SIMD_FN Mask kept(const uint16_t* bits, uint32_t threshold) {
  Mask m;
  const auto below = hn::Set(DI(), static_cast<int32_t>(threshold) - 1);
  SIMD_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const auto wide = hn::PromoteTo(DI(), hn::LoadU(DH(), bits + i * kLanes));
    m.v[i] = hn::RebindMask(DF(), hn::Gt(wide, below));
  }
  return m;
}

// Computes elements [begin, end) of one sample; element i of it is element `at` + i of the operands. x is null for
// y = dropout(h).
template <class T>
SIMD_FN void dropout_span(const DropoutRule& rule, PhiloxKey key, uint64_t sample, const T* x,
                          const T* h, T* y, int64_t at, int64_t begin, int64_t end) {
  const Pack scale = all(rule.scale);
  const auto low = static_cast<uint32_t>(sample), high = static_cast<uint32_t>(sample >> 32);
  SpanWords span;
  for (int64_t e = begin / kSpan * kSpan; e < end; e += kSpan) {
    const uint64_t block = static_cast<uint64_t>(e) / 8;
    philox_blocks(key,
                  {low, high, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)}, 2,
                  span.words);
    const auto* bits = reinterpret_cast<const uint16_t*>(&span);
    for_packs(HWY_MAX(e, begin), HWY_MIN(e + kSpan, end), [=](int64_t i, auto n) SIMD_INLINE {
      const Pack dropped =
          select_or_zero(kept(bits + (i - e), rule.threshold), load(h + at + i, n));
      store(x ? fma(dropped, scale, load(x + at + i, n)) : dropped * scale, y + at + i, n);
    });
  }
}

// Computes the operand's elements in spans [begin, end).
void dropout_range(const Dropout& d, PhiloxKey key, uint64_t first_sample, const void* x,
                   const void* h, void* y, int64_t begin, int64_t end) {
  const int64_t spans = d.spans();
  with_type(d.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    while (begin < end) {
      const int64_t b = begin / spans, stop = HWY_MIN(end, (b + 1) * spans);
      const int64_t sample = b * d.sample_elements;
      const int64_t sample_end = HWY_MIN(sample + d.sample_elements, d.end);
      dropout_span(d.rule, key, first_sample + static_cast<uint64_t>(b), static_cast<const T*>(x),
                   static_cast<const T*>(h), static_cast<T*>(y), sample - d.first,
                   HWY_MAX((begin - b * spans) * kSpan, d.first - sample),
                   HWY_MIN((stop - b * spans) * kSpan, sample_end - sample));
      begin = stop;
    }
  });
}

// y = x + h without dropout; a copy of h if x is null.
void residual_range(DType dtype, const void* x, const void* h, void* y, int64_t begin,
                    int64_t end) {
  with_type(dtype, [=](auto t) SIMD_INLINE {
    using T = decltype(t);
    const T *p = static_cast<const T*>(x), *q = static_cast<const T*>(h);
    T* to = static_cast<T*>(y);
    for_packs(begin, end, [=](int64_t i, auto n) SIMD_INLINE {
      store(p ? load(p + i, n) + load(q + i, n) : load(q + i, n), to + i, n);
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

std::unique_ptr<Kernel> make_dropout(const KernelSpec& spec, bool residual) {
  const int64_t n = elements(spec.out[0]), c = columns(spec.out[0]);
  const auto attrs = attrs_as<DropoutAttrs>(spec.attrs);
  const Dropout d{.dtype = spec.out[0].dtype,
                  .rule = DropoutRule(attrs.dropout),
                  .site = attrs.site,
                  .sample_elements = std::max<int64_t>(1, attrs.seq_len) * c,
                  .first = attrs.part.first * c,
                  .end = attrs.part.first * c + n};
  return kernel_of([d, n, residual, threads = spec.threads](const KernelCall& call) {
    const void* x = residual ? data(call.in, 0) : nullptr;
    const void* h = data(call.in, residual ? 1 : 0);
    void* y = data(call.out, 0);
    if (d.rule.threshold == 0) {
      parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
        DSTRAIN_BEST(residual_range)(d.dtype, x, h, y, begin, end);
      });
      return;
    }
    const PhiloxKey key = stream_key(call.state->seed, kDropoutStream + d.site);
    const auto first = static_cast<uint64_t>(call.state->first_sample + call.sample_offset);
    const int64_t from = d.span_of(d.first), spans = d.span_of(d.end - 1) + 1 - from;
    parallel_ranges(threads, spans, 32, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(dropout_range)(d, key, first, x, h, y, from + begin, from + end);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_add_dropout(const KernelSpec& spec) {
  return make_dropout(spec, true);
}

std::unique_ptr<Kernel> make_dropout_grad(const KernelSpec& spec) {
  return make_dropout(spec, false);
}

}  // namespace dstrain::simd
#endif
