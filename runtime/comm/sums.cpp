#include "runtime/comm/sums.h"

#include <cstddef>
#include <cstring>

#include "runtime/core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/comm/sums.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h has to come first.
#include <hwy/highway.h>

#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How elements of a dtype are loaded into lanes of the accumulator and stored from them. The 16-bit
// conversions are those of runtime/core/dtype.h in integer arithmetic, so that every instruction set gives
// the same bits.
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

// The arguments of one sum. Raw pointers only: the linker could use a standard template that is
// instantiated here, compiled for one instruction set, in the whole program.
struct Job {
  const std::byte* before;
  const std::byte* const* sources;
  size_t ranks;
  std::byte* const* destinations;
  size_t copies;
  int64_t n;
};

// Adds elements of Type to a running sum of Running's elements and writes Out's.
template <class Type, class Running, class Out>
void sum_as(const Job& job) {
  using Element = typename Type::Element;
  const typename Type::Wide d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const size_t ranks = job.ranks, copies = job.copies;
  const int64_t n = job.n;
  const auto from = [&](size_t r) { return reinterpret_cast<const Element*>(job.sources[r]); };
  const auto* before = reinterpret_cast<const typename Running::Element*>(job.before);
  const auto to = [&](size_t c) {
    return reinterpret_cast<typename Out::Element*>(job.destinations[c]);
  };
  const size_t next = before ? 0 : 1;  // the first source that is added to something
  int64_t i = 0;
  // Four vectors at a time, so that each rank's pointer is loaded once for all of them.
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto first = [&](int64_t at) {
      return before ? Running::load(before + at) : Type::load(from(0) + at);
    };
    auto s0 = first(i), s1 = first(i + lanes);
    auto s2 = first(i + 2 * lanes), s3 = first(i + 3 * lanes);
    for (size_t r = next; r < ranks; ++r) {
      const Element* p = from(r) + i;
      s0 = hn::Add(s0, Type::load(p));
      s1 = hn::Add(s1, Type::load(p + lanes));
      s2 = hn::Add(s2, Type::load(p + 2 * lanes));
      s3 = hn::Add(s3, Type::load(p + 3 * lanes));
    }
    for (size_t c = 0; c < copies; ++c) {
      auto* q = to(c) + i;
      Out::store(s0, q);
      Out::store(s1, q + lanes);
      Out::store(s2, q + 2 * lanes);
      Out::store(s3, q + 3 * lanes);
    }
  }
  // The tail goes through a full vector too, so that the same instructions make every element.
  HWY_ALIGN Element buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN typename Running::Element running[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN typename Out::Element result[HWY_MAX_BYTES / sizeof(float)] = {};
  for (; i < n; i += lanes) {
    const auto count = static_cast<size_t>(n - i < lanes ? n - i : lanes);
    if (before) std::memcpy(running, before + i, count * sizeof(*running));
    auto sum = Running::load(running);
    for (size_t r = 0; r < ranks; ++r) {
      std::memcpy(buffer, from(r) + i, count * sizeof(Element));
      sum = r < next ? Type::load(buffer) : hn::Add(sum, Type::load(buffer));
    }
    Out::store(sum, result);
    for (size_t c = 0; c < copies; ++c) std::memcpy(to(c) + i, result, count * sizeof(*result));
  }
}

void rounded(DType dtype, const Job& job) {
  switch (dtype) {
    case DType::f32:
      return sum_as<F32, F32, F32>(job);
    case DType::bf16:
      return sum_as<BF16, F32, BF16>(job);
    case DType::f16:
      return sum_as<F16, F32, F16>(job);
    case DType::f64:
      return sum_as<F64, F64, F64>(job);
    case DType::i32:
      return sum_as<I32, I32, I32>(job);
    case DType::u8:
      return;
  }
}

void unrounded(DType dtype, const Job& job) {
  switch (dtype) {
    case DType::bf16:
      return sum_as<BF16, F32, F32>(job);
    case DType::f16:
      return sum_as<F16, F32, F32>(job);
    case DType::f32:
    case DType::f64:
    case DType::i32:
    case DType::u8:
      return rounded(dtype, job);
  }
}

void sum(DType dtype, bool round, const std::byte* before, const std::byte* const* sources,
         size_t ranks, std::byte* const* destinations, size_t copies, int64_t n) {
  const Job job{before, sources, ranks, destinations, copies, n};
  if (round)
    rounded(dtype, job);
  else
    unrounded(dtype, job);
}

}  // namespace HWY_NAMESPACE
}  // namespace dstrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain {

void sum_in_order(DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, int64_t n, const std::byte* before,
                  Vectors most) {
  check(dtype != DType::u8, "no sum of {}", name_of(dtype));
  DSTRAIN_VARIANTS(sum).at(most)(dtype, true, before, sources.data(), sources.size(),
                                 destinations.data(), destinations.size(), n);
}

void running_sum(DType dtype, std::span<const std::byte* const> sources, std::byte* running,
                 int64_t n, const std::byte* before, Vectors most) {
  check(dtype != DType::u8, "no sum of {}", name_of(dtype));
  DSTRAIN_VARIANTS(sum).at(most)(dtype, false, before, sources.data(), sources.size(), &running, 1,
                                 n);
}

}  // namespace dstrain
#endif
