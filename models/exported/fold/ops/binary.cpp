// Functions of the elements of two tensors or more, which are broadcast.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <string>

#include "models/exported/fold/operands.h"
#include "models/exported/fold/pointwise.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

// Returns the operands' tensors repeated to common sizes.
template <size_t N>
std::array<HostTensor, N> broadcast(const Operands& o, const std::array<Operand, N>& operands) {
  std::vector<Sizes> all;
  for (const Operand& operand : operands) all.push_back(operand.tensor.sizes);
  const std::optional<Sizes> sizes = broadcast_sizes(all);
  if (!sizes) o.fail("has operands whose sizes do not fit each other");
  std::array<HostTensor, N> tensors;
  for (size_t i = 0; i < N; ++i) tensors[i] = expanded(operands[i].tensor, *sizes).value();
  return tensors;
}

// Whole numbers wrap around, as PyTorch's do.
template <class C, class Compute>
C wrapping(C a, C b, Compute compute) {
  if constexpr (std::integral<C>)
    return static_cast<C>(compute(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  else
    return compute(a, b);
}

// The result has the common type of `first` and `second`.
template <class Compute>
HostTensor combine(const Operands& o, const Operand& first, const Operand& second,
                   Compute compute) {
  const ScalarType type = result_type({first, second});
  const std::array tensors = broadcast<2>(o, {first, second});
  return in_type_of(type, [&](auto zero) {
    return map_elements<decltype(zero)>(o.budget(), type, tensors, compute);
  });
}

template <class Compute>
Results combined_type(const Operands& o, Compute compute) {
  return {combine(o, o.operand("self"), o.operand("other"), compute)};
}

// The result is a truth value; both are compared in their common type.
template <class Compute>
Results compared(const Operands& o, Compute compute) {
  const Operand self = o.operand("self"), other = o.operand("other");
  const std::array tensors = broadcast<2>(o, {self, other});
  return in_type_of(result_type({self, other}), [&](auto zero) {
    using C = decltype(zero);
    const auto number = [&](C a, C b) { return static_cast<int64_t>(compute(a, b)); };
    return Results{map_elements<C>(o.budget(), ScalarType::boolean, tensors, number)};
  });
}

// self + sign * alpha * other.
HostTensor add_scaled(const Operands& o, const Operand& self, const Operand& other, int sign) {
  const Scalar alpha = o.node().scalar("alpha").value();
  return combine(o, self, other, [&](auto a, auto b) {
    using C = decltype(a);
    const C scale = std::visit([](auto x) { return converted<C>(x); }, alpha);
    const C scaled = scale == C(1) ? b : wrapping(scale, b, [](auto x, auto y) { return x * y; });
    if (sign < 0) return wrapping(a, scaled, [](auto x, auto y) { return x - y; });
    return wrapping(a, scaled, [](auto x, auto y) { return x + y; });
  });
}

Results add(const Operands& o) {
  return {add_scaled(o, o.operand("self"), o.operand("other"), 1)};
}
Results sub(const Operands& o) {
  return {add_scaled(o, o.operand("self"), o.operand("other"), -1)};
}
Results rsub(const Operands& o) {
  return {add_scaled(o, o.operand("other"), o.operand("self"), -1)};
}

Results mul(const Operands& o) {
  return combined_type(
      o, [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); });
}

// The quotient of fractions; whole operands are divided as f32.
HostTensor true_quotient(const Operands& o, const Operand& self, const Operand& other) {
  ScalarType type = result_type({self, other});
  if (!is_floating(type)) type = ScalarType::f32;
  const std::array tensors = broadcast<2>(o, {self, other});
  const auto divide = [](auto a, auto b) { return a / b; };
  if (type == ScalarType::f64) return map_elements<double>(o.budget(), type, tensors, divide);
  return map_elements<float>(o.budget(), type, tensors, divide);
}

// The quotient in the common type, rounded down or (`truncate`) to zero.
HostTensor whole_quotient(const Operands& o, bool truncate) {
  return combine(o, o.operand("self"), o.operand("other"), [&](auto a, auto b) {
    if constexpr (std::integral<decltype(a)>) {
      if (b == 0) o.fail("divides by zero");
      if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));
      const int64_t quotient = a / b;
      return !truncate && quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
    } else {
      return truncate ? std::trunc(a / b) : std::floor(a / b);
    }
  });
}

Results div(const Operands& o) {
  return {true_quotient(o, o.operand("self"), o.operand("other"))};
}

Results div_mode(const Operands& o) {
  if (!o.node().has("rounding_mode")) return div(o);
  return {whole_quotient(o, o.node().text("rounding_mode") == "trunc")};
}

Results floor_divide(const Operands& o) {
  return {whole_quotient(o, false)};
}

// The remainder, with the sign of the divisor.
Results remainder(const Operands& o) {
  return combined_type(o, [&](auto a, auto b) {
    if constexpr (std::integral<decltype(a)>) {
      if (b == 0) o.fail("divides by zero");
      if (b == -1) return int64_t{0};
      const int64_t rest = a % b;
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    } else {
      const auto rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
  });
}

// The remainder, with the sign of what is divided.
Results fmod(const Operands& o) {
  return combined_type(o, [&](auto a, auto b) {
    if constexpr (std::integral<decltype(a)>) {
      if (b == 0) o.fail("divides by zero");
      return b == -1 ? int64_t{0} : a % b;
    } else {
      return std::fmod(a, b);
    }
  });
}

int64_t whole_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (auto n = static_cast<uint64_t>(exponent); n > 0; n >>= 1, factor *= factor)
    if ((n & 1) != 0) result *= factor;
  return static_cast<int64_t>(result);
}

Results pow(const Operands& o) {
  return {combine(o, o.operand("self"), o.operand("exponent"), [](auto a, auto b) {
    if constexpr (std::integral<decltype(a)>)
      return whole_power(a, b);
    else
      return std::pow(a, b);
  })};
}

// NaN where one operand is.
Results maximum(const Operands& o) {
  return combined_type(o, [](auto a, auto b) { return a != a || a > b ? a : b; });
}
Results minimum(const Operands& o) {
  return combined_type(o, [](auto a, auto b) { return a != a || a < b ? a : b; });
}

// A function of bits, or of truth values.
template <class Compute>
Results bitwise(const Operands& o, Compute compute) {
  if (is_floating(result_type({o.operand("self"), o.operand("other")}))) o.fail("has a fraction");
  return combined_type(o, [compute](auto a, auto b) {
    if constexpr (std::integral<decltype(a)>)
      return static_cast<int64_t>(compute(a, b));
    else
      return a;
  });
}

Results bit_and(const Operands& o) {
  return bitwise(o, [](int64_t a, int64_t b) { return a & b; });
}
Results bit_or(const Operands& o) {
  return bitwise(o, [](int64_t a, int64_t b) { return a | b; });
}
Results bit_xor(const Operands& o) {
  return bitwise(o, [](int64_t a, int64_t b) { return a ^ b; });
}

// The elements of `first` where the condition holds, else those of `second`, in their common type.
HostTensor chosen(const Operands& o, const HostTensor& condition, const Operand& first,
                  const Operand& second, ScalarType type) {
  const std::array tensors = broadcast<3>(o, {Operand{condition, false}, first, second});
  return in_type_of(type, [&](auto zero) {
    return map_elements<decltype(zero)>(o.budget(), type, tensors,
                                        [](auto c, auto a, auto b) { return c != 0 ? a : b; });
  });
}

Results where(const Operands& o) {
  const Operand self = o.operand("self"), other = o.operand("other");
  return {chosen(o, o.tensor("condition"), self, other, result_type({self, other}))};
}

Results masked_fill(const Operands& o) {
  const Operand self = o.operand("self");
  return {chosen(o, o.tensor("mask"), o.operand("value"), self, self.tensor.type)};
}

Results clamp(const Operands& o) {
  Operand result = o.operand("self");
  if (o.node().has("min"))
    result = {combine(o, result, o.operand("min"), [](auto a, auto b) { return a < b ? b : a; })};
  if (o.node().has("max"))
    result = {combine(o, result, o.operand("max"), [](auto a, auto b) { return a > b ? b : a; })};
  return {result.tensor};
}

Results eq(const Operands& o) {
  return compared(o, [](auto a, auto b) { return a == b; });
}
Results ne(const Operands& o) {
  return compared(o, [](auto a, auto b) { return a != b; });
}
Results lt(const Operands& o) {
  return compared(o, [](auto a, auto b) { return a < b; });
}
Results le(const Operands& o) {
  return compared(o, [](auto a, auto b) { return a <= b; });
}
Results gt(const Operands& o) {
  return compared(o, [](auto a, auto b) { return a > b; });
}
Results ge(const Operands& o) {
  return compared(o, [](auto a, auto b) { return a >= b; });
}
Results logical_and(const Operands& o) {
  return compared(o, [](auto a, auto b) { return a != 0 && b != 0; });
}
Results logical_or(const Operands& o) {
  return compared(o, [](auto a, auto b) { return a != 0 || b != 0; });
}
Results logical_xor(const Operands& o) {
  return compared(o, [](auto a, auto b) { return (a != 0) != (b != 0); });
}

constexpr EvaluatedOp kBinaryOps[] = {
    {"aten.add.Tensor", add},
    {"aten.add.Scalar", add},
    {"aten.sub.Tensor", sub},
    {"aten.sub.Scalar", sub},
    {"aten.rsub.Tensor", rsub},
    {"aten.rsub.Scalar", rsub},
    {"aten.mul.Tensor", mul},
    {"aten.mul.Scalar", mul},
    {"aten.div.Tensor", div},
    {"aten.div.Scalar", div},
    {"aten.div.Tensor_mode", div_mode},
    {"aten.div.Scalar_mode", div_mode},
    {"aten.floor_divide.default", floor_divide},
    {"aten.floor_divide.Scalar", floor_divide},
    {"aten.fmod.Tensor", fmod},
    {"aten.fmod.Scalar", fmod},
    {"aten.remainder.Tensor", remainder},
    {"aten.remainder.Scalar", remainder},
    {"aten.pow.Tensor_Scalar", pow},
    {"aten.pow.Tensor_Tensor", pow},
    {"aten.pow.Scalar", pow},
    {"aten.maximum.default", maximum},
    {"aten.max.other", maximum},
    {"aten.minimum.default", minimum},
    {"aten.min.other", minimum},
    {"aten.clamp.default", clamp},
    {"aten.eq.Tensor", eq},
    {"aten.eq.Scalar", eq},
    {"aten.ne.Tensor", ne},
    {"aten.ne.Scalar", ne},
    {"aten.lt.Tensor", lt},
    {"aten.lt.Scalar", lt},
    {"aten.le.Tensor", le},
    {"aten.le.Scalar", le},
    {"aten.gt.Tensor", gt},
    {"aten.gt.Scalar", gt},
    {"aten.ge.Tensor", ge},
    {"aten.ge.Scalar", ge},
    {"aten.logical_and.default", logical_and},
    {"aten.logical_or.default", logical_or},
    {"aten.logical_xor.default", logical_xor},
    {"aten.bitwise_and.Tensor", bit_and},
    {"aten.bitwise_and.Scalar", bit_and},
    {"aten.__and__.Tensor", bit_and},
    {"aten.__and__.Scalar", bit_and},
    {"aten.bitwise_or.Tensor", bit_or},
    {"aten.bitwise_or.Scalar", bit_or},
    {"aten.__or__.Tensor", bit_or},
    {"aten.__or__.Scalar", bit_or},
    {"aten.bitwise_xor.Tensor", bit_xor},
    {"aten.bitwise_xor.Scalar", bit_xor},
    {"aten.__xor__.Tensor", bit_xor},
    {"aten.__xor__.Scalar", bit_xor},
    {"aten.where.self", where},
    {"aten.where.ScalarOther", where},
    {"aten.where.ScalarSelf", where},
    {"aten.where.Scalar", where},
    {"aten.masked_fill.Scalar", masked_fill},
    {"aten.masked_fill.Tensor", masked_fill},
};

}  // namespace

std::span<const EvaluatedOp> binary_ops() {
  return kBinaryOps;
}

}  // namespace dstrain::exported
