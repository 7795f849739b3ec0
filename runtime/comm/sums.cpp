#include "runtime/comm/sums.h"

#include <cstddef>
#include <cstring>

#include "runtime/core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/comm/sums.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h has to come first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dstrain {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How a dtype is loaded into lanes of the accumulator and stored from them. The 16-bit rules are those
// of runtime/core/dtype.h, in integer arithmetic: the same bits with every instruction set.
struct F32 {
  using Element = float;
  using Wide = hn::ScalableTag<float>;
  static hn::Vec<Wide> load(const Element* p) { return hn::LoadU(Wide(), p); }
  static void store(hn::Vec<Wide> v, Element* p) { hn::StoreU(v, Wide(), p); }
};

struct F64 {
  using Element = double;
  using Wide = hn::ScalableTag<double>;
  static hn::Vec<Wide> load(const Element* p) { return hn::LoadU(Wide(), p); }
  static void store(hn::Vec<Wide> v, Element* p) { hn::StoreU(v, Wide(), p); }
};

struct I32 {
  using Element = int32_t;
  using Wide = hn::ScalableTag<int32_t>;
  static hn::Vec<Wide> load(const Element* p) { return hn::LoadU(Wide(), p); }
  static void store(hn::Vec<Wide> v, Element* p) { hn::StoreU(v, Wide(), p); }
};

using U32 = hn::ScalableTag<uint32_t>;
using U16Half = hn::Rebind<uint16_t, U32>;

struct BF16 {
  using Element = uint16_t;
  using Wide = hn::ScalableTag<float>;
  static hn::Vec<Wide> load(const Element* p) {
    return hn::BitCast(Wide(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(U16Half(), p))));
  }
  static void store(hn::Vec<Wide> v, Element* p) {
    const U32 d;
    const auto u = hn::BitCast(d, v);
    const auto high = hn::ShiftRight<16>(u);
    const auto odd = hn::And(high, hn::Set(d, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(u, hn::Set(d, 0x7fffu)), odd));
    const auto quiet = hn::Or(high, hn::Set(d, 0x40u));
    const auto nan = hn::RebindMask(d, hn::IsNaN(v));
    hn::StoreU(hn::TruncateTo(U16Half(), hn::IfThenElse(nan, quiet, rounded)), U16Half(), p);
  }
};

struct F16 {
  using Element = uint16_t;
  using Wide = hn::ScalableTag<float>;
  static hn::Vec<Wide> load(const Element* p) {
    const U32 d;
    const auto x = hn::PromoteTo(d, hn::LoadU(U16Half(), p));
    const auto sign = hn::ShiftLeft<16>(hn::And(x, hn::Set(d, 0x8000u)));
    const auto magnitude = hn::And(x, hn::Set(d, 0x7fffu));
    const auto mantissa = hn::And(x, hn::Set(d, 0x3ffu));
    const auto exponent = hn::Sub(magnitude, mantissa);
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(d, 112u << 23));
    const auto special = hn::Or(hn::ShiftLeft<13>(mantissa), hn::Set(d, 0x7f800000u));
    const auto subnormal = hn::BitCast(
        d, hn::Mul(hn::ConvertTo(Wide(), hn::BitCast(hn::ScalableTag<int32_t>(), mantissa)),
                   hn::Set(Wide(), 0x1p-24f)));
    auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(d, 0x7c00u)), special, normal);
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(d)), subnormal, bits);
    return hn::BitCast(Wide(), hn::Or(bits, sign));
  }
  static void store(hn::Vec<Wide> v, Element* p) {
    const U32 d;
    const auto u = hn::BitCast(d, v);
    const auto sign = hn::And(hn::ShiftRight<16>(u), hn::Set(d, 0x8000u));
    const auto a = hn::And(u, hn::Set(d, 0x7fffffffu));
    const auto odd = hn::And(hn::ShiftRight<13>(a), hn::Set(d, 1));
    const auto normal = hn::ShiftRight<13>(
        hn::Add(hn::Sub(a, hn::Set(d, 0x38000000u)), hn::Add(hn::Set(d, 0xfffu), odd)));
    const auto shifted = hn::Add(hn::BitCast(Wide(), a), hn::Set(Wide(), 0.5f));
    const auto subnormal = hn::Sub(hn::BitCast(d, shifted), hn::Set(d, 0x3f000000u));
    auto bits = hn::IfThenElse(hn::Lt(a, hn::Set(d, 0x38800000u)), subnormal, normal);
    bits = hn::IfThenElse(hn::Gt(a, hn::Set(d, 0x477fefffu)), hn::Set(d, 0x7c00u), bits);
    bits = hn::IfThenElse(hn::Gt(a, hn::Set(d, 0x7f800000u)), hn::Set(d, 0x7e00u), bits);
    hn::StoreU(hn::TruncateTo(U16Half(), hn::Or(bits, sign)), U16Half(), p);
  }
};

// Raw pointers only: a standard template instantiated here could leave its code, compiled for one
// instruction set, to the whole program.
template <class Type>
void sum_as(const std::byte* const* sources, size_t ranks, std::byte* const* destinations,
            size_t copies, int64_t n) {
  using Element = typename Type::Element;
  const typename Type::Wide d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto from = [&](size_t r) { return reinterpret_cast<const Element*>(sources[r]); };
  const auto to = [&](size_t c) { return reinterpret_cast<Element*>(destinations[c]); };
  int64_t i = 0;
  // Several vectors at once: the pointers are loaded once for all of them.
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const Element* p = from(0) + i;
    auto s0 = Type::load(p), s1 = Type::load(p + lanes);
    auto s2 = Type::load(p + 2 * lanes), s3 = Type::load(p + 3 * lanes);
    for (size_t r = 1; r < ranks; ++r) {
      p = from(r) + i;
      s0 = hn::Add(s0, Type::load(p));
      s1 = hn::Add(s1, Type::load(p + lanes));
      s2 = hn::Add(s2, Type::load(p + 2 * lanes));
      s3 = hn::Add(s3, Type::load(p + 3 * lanes));
    }
    for (size_t c = 0; c < copies; ++c) {
      Element* q = to(c) + i;
      Type::store(s0, q);
      Type::store(s1, q + lanes);
      Type::store(s2, q + 2 * lanes);
      Type::store(s3, q + 3 * lanes);
    }
  }
  // The tail goes through a full vector too, so that every element sees the same instructions.
  HWY_ALIGN Element buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  for (; i < n; i += lanes) {
    const size_t bytes = sizeof(Element) * static_cast<size_t>(n - i < lanes ? n - i : lanes);
    auto sum = hn::Zero(d);
    for (size_t r = 0; r < ranks; ++r) {
      std::memcpy(buffer, from(r) + i, bytes);
      sum = r == 0 ? Type::load(buffer) : hn::Add(sum, Type::load(buffer));
    }
    Type::store(sum, buffer);
    for (size_t c = 0; c < copies; ++c) std::memcpy(to(c) + i, buffer, bytes);
  }
}

void sum(DType dtype, const std::byte* const* sources, size_t ranks, std::byte* const* destinations,
         size_t copies, int64_t n) {
  switch (dtype) {
    case DType::f32:
      return sum_as<F32>(sources, ranks, destinations, copies, n);
    case DType::bf16:
      return sum_as<BF16>(sources, ranks, destinations, copies, n);
    case DType::f16:
      return sum_as<F16>(sources, ranks, destinations, copies, n);
    case DType::f64:
      return sum_as<F64>(sources, ranks, destinations, copies, n);
    case DType::i32:
      return sum_as<I32>(sources, ranks, destinations, copies, n);
    case DType::u8:
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain {

HWY_EXPORT(sum);

void sum_in_order(DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, int64_t n) {
  check(dtype != DType::u8, "no sum of {}", name_of(dtype));
  HWY_DYNAMIC_DISPATCH(sum)
  (dtype, sources.data(), sources.size(), destinations.data(), destinations.size(), n);
}

}  // namespace dstrain
#endif
