#include "kernels/cpu/products/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/core/isa/best_variant.h"
#include "runtime/core/threads/parts.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using Bits = hn::RebindToUnsigned<F32>;
using Half = hn::Rebind<uint16_t, F32>;
using Vec = hn::Vec<F32>;

// Without AVX2, Highway's f16 conversion does not round ties to even, so scalar code is used.
#if HWY_TARGET <= HWY_AVX2
constexpr bool kVectorF16 = true;
#else
constexpr bool kVectorF16 = false;
#endif

template <class T>
Vec load(const T* from) {
  const F32 f;
  if constexpr (std::is_same_v<T, float>) {
    return hn::LoadU(f, from);
  } else if constexpr (std::is_same_v<T, bf16>) {
    const auto half = hn::LoadU(Half(), reinterpret_cast<const uint16_t*>(from));
    return hn::BitCast(f, hn::ShiftLeft<16>(hn::PromoteTo(Bits(), half)));
  } else {
    const hn::Rebind<hwy::float16_t, F32> h;
    return hn::PromoteTo(f, hn::LoadU(h, reinterpret_cast<const hwy::float16_t*>(from)));
  }
}

template <class T>
void store(Vec v, T* to) {
  const F32 f;
  if constexpr (std::is_same_v<T, float>) {
    hn::StoreU(v, f, to);
  } else if constexpr (std::is_same_v<T, bf16>) {
    const Bits u;
    const auto bits = hn::BitCast(u, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
    const auto even = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fff))));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u, 0x40));
    const auto nan = hn::RebindMask(u, hn::IsNaN(v));
    const auto half = hn::DemoteTo(
        Half(), hn::BitCast(hn::RebindToSigned<Bits>(), hn::IfThenElse(nan, quiet, even)));
    hn::StoreU(half, Half(), reinterpret_cast<uint16_t*>(to));
  } else {
    const hn::Rebind<hwy::float16_t, F32> h;
    hn::StoreU(hn::DemoteTo(h, v), h, reinterpret_cast<hwy::float16_t*>(to));
  }
}

template <class T>
constexpr bool has_vector() {
  return kVectorF16 || !std::is_same_v<T, f16>;
}

template <class T>
void widen_rows(const Block& from, int64_t begin, int64_t end, int64_t columns, float* to,
                int64_t to_stride) {
  const F32 f;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(f));
  for (int64_t r = begin; r < end; ++r) {
    const T* src = static_cast<const T*>(from.data) + r * from.stride;
    float* dst = to + r * to_stride;
    int64_t c = 0;
    if constexpr (has_vector<T>()) {
      for (; c + lanes <= columns; c += lanes) hn::StoreU(load(src + c), f, dst + c);
    }
    for (; c < columns; ++c) dst[c] = to_float(src[c]);
  }
}

// The tail computes one element at a time with the same operations: an addition, a maximum, a rounding.
template <class T>
void finish_rows(const float* from, int64_t from_stride, int64_t begin, int64_t end,
                 int64_t columns, const void* bias_data, bool relu, const Block& to) {
  const F32 f;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(f));
  const T* bias = static_cast<const T*>(bias_data);
  for (int64_t r = begin; r < end; ++r) {
    const float* src = from + r * from_stride;
    T* dst = static_cast<T*>(to.data) + r * to.stride;
    int64_t c = 0;
    if constexpr (has_vector<T>()) {
      const auto zero = hn::Zero(f);
      for (; c + lanes <= columns; c += lanes) {
        auto v = hn::LoadU(f, src + c);
        if (bias != nullptr) v = hn::Add(v, load(bias + c));
        if (relu) v = hn::IfThenZeroElse(hn::Lt(v, zero), v);
        store(v, dst + c);
      }
    }
    for (; c < columns; ++c) {
      float v = src[c];
      if (bias != nullptr) v += to_float(bias[c]);
      dst[c] = from_float<T>(relu && v < 0 ? 0.0f : v);
    }
  }
}

void widen_any(const Block& from, int64_t begin, int64_t end, int64_t columns, float* to,
               int64_t to_stride) {
  if (from.dtype == DType::bf16) {
    widen_rows<bf16>(from, begin, end, columns, to, to_stride);
  } else {
    widen_rows<f16>(from, begin, end, columns, to, to_stride);
  }
}

void finish_any(const float* from, int64_t from_stride, int64_t begin, int64_t end, int64_t columns,
                const void* bias, bool relu, const Block& to) {
  if (to.dtype == DType::f32) {
    finish_rows<float>(from, from_stride, begin, end, columns, bias, relu, to);
  } else if (to.dtype == DType::bf16) {
    finish_rows<bf16>(from, from_stride, begin, end, columns, bias, relu, to);
  } else {
    finish_rows<f16>(from, from_stride, begin, end, columns, bias, relu, to);
  }
}

}  // namespace dstrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain {

void widen(const Block& from, int64_t rows, int64_t columns, float* to, int64_t to_stride,
           int threads) {
  run_ranges(threads, rows, [&](int64_t begin, int64_t end) {
    DSTRAIN_BEST(widen_any)(from, begin, end, columns, to, to_stride);
  });
}

void finish(const float* from, int64_t from_stride, int64_t rows, int64_t columns, const void* bias,
            bool relu, const Block& to, int threads) {
  run_ranges(threads, rows, [&](int64_t begin, int64_t end) {
    DSTRAIN_BEST(finish_any)(from, from_stride, begin, end, columns, bias, relu, to);
  });
}

}  // namespace dstrain
#endif  // HWY_ONCE
