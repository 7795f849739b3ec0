// Functions of one tensor's elements.
#include <cmath>
#include <concepts>
#include <limits>

#include "models/exported/fold/operands.h"
#include "models/exported/fold/pointwise.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

// The result has the operand's type.
template <class Compute>
Results same_type(const Operands& o, Compute compute) {
  const HostTensor self = o.tensor("self");
  return in_type_of(self.type, [&](auto zero) {
    using C = decltype(zero);
    return Results{map_elements<C>(o.budget(), self.type, std::array{self}, compute)};
  });
}

// The result is a fraction: of the operand's type, or f32 where that is whole.
template <class Compute>
Results fraction(const Operands& o, Compute compute) {
  const HostTensor self = o.tensor("self");
  const ScalarType type = is_floating(self.type) ? self.type : ScalarType::f32;
  if (type == ScalarType::f64)
    return {map_elements<double>(o.budget(), type, std::array{self}, compute)};
  return {map_elements<float>(o.budget(), type, std::array{self}, compute)};
}

// The result is a truth value.
template <class Compute>
Results truth(const Operands& o, Compute compute) {
  const HostTensor self = o.tensor("self");
  return in_type_of(self.type, [&](auto zero) {
    using C = decltype(zero);
    const auto number = [&](C x) { return static_cast<int64_t>(compute(x)); };
    return Results{map_elements<C>(o.budget(), ScalarType::boolean, std::array{self}, number)};
  });
}

// Rounds fractions, and leaves whole numbers.
template <class Round>
Results rounded(const Operands& o, Round round) {
  return same_type(o, [round](auto x) {
    if constexpr (std::integral<decltype(x)>)
      return x;
    else
      return round(x);
  });
}

int64_t negative(int64_t x) {
  return static_cast<int64_t>(0 - static_cast<uint64_t>(x));
}
double negative(double x) {
  return -x;
}
float negative(float x) {
  return -x;
}

Results bitwise_not(const Operands& o) {
  const HostTensor self = o.tensor("self");
  if (is_floating(self.type)) o.fail("has a fraction");
  const bool is_truth = self.type == ScalarType::boolean;
  const auto invert = [is_truth](int64_t x) {
    return is_truth ? static_cast<int64_t>(x == 0) : ~x;
  };
  return {map_elements<int64_t>(o.budget(), self.type, std::array{self}, invert)};
}

constexpr EvaluatedOp kUnaryOps[] = {
    {"aten.abs.default",
     [](const Operands& o) {
       return same_type(o, [](auto x) { return x < 0 ? negative(x) : x == 0 ? x * x : x; });
     }},
    {"aten.neg.default",
     [](const Operands& o) { return same_type(o, [](auto x) { return negative(x); }); }},
    {"aten.square.default",
     [](const Operands& o) {
       return same_type(o, [](auto x) {
         if constexpr (std::integral<decltype(x)>)
           return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
         else
           return x * x;
       });
     }},
    {"aten.sign.default",
     [](const Operands& o) {
       return same_type(o, [](auto x) { return static_cast<decltype(x)>((x > 0) - (x < 0)); });
     }},
    {"aten.relu.default",
     [](const Operands& o) {
       return same_type(o, [](auto x) { return x < 0 ? decltype(x)(0) : x; });
     }},
    {"aten.floor.default",
     [](const Operands& o) { return rounded(o, [](auto x) { return std::floor(x); }); }},
    {"aten.ceil.default",
     [](const Operands& o) { return rounded(o, [](auto x) { return std::ceil(x); }); }},
    {"aten.trunc.default",
     [](const Operands& o) { return rounded(o, [](auto x) { return std::trunc(x); }); }},
    {"aten.round.default",
     [](const Operands& o) { return rounded(o, [](auto x) { return std::nearbyint(x); }); }},
    {"aten.bitwise_not.default", bitwise_not},
    {"aten.logical_not.default",
     [](const Operands& o) { return truth(o, [](auto x) { return x == 0; }); }},
    {"aten.isnan.default",
     [](const Operands& o) { return truth(o, [](auto x) { return x != x; }); }},
    {"aten.exp.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::exp(x); }); }},
    {"aten.expm1.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::expm1(x); }); }},
    {"aten.log.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::log(x); }); }},
    {"aten.log2.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::log2(x); }); }},
    {"aten.log10.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::log10(x); }); }},
    {"aten.log1p.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::log1p(x); }); }},
    {"aten.sqrt.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::sqrt(x); }); }},
    {"aten.rsqrt.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return 1 / std::sqrt(x); }); }},
    {"aten.reciprocal.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return 1 / x; }); }},
    {"aten.sin.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::sin(x); }); }},
    {"aten.cos.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::cos(x); }); }},
    {"aten.tan.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::tan(x); }); }},
    {"aten.tanh.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::tanh(x); }); }},
    {"aten.sigmoid.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return 1 / (1 + std::exp(-x)); }); }},
    {"aten.erf.default",
     [](const Operands& o) { return fraction(o, [](auto x) { return std::erf(x); }); }},
};

}  // namespace

std::span<const EvaluatedOp> unary_ops() {
  return kUnaryOps;
}

}  // namespace dstrain::exported
