// Functions that other operators are made of: rarer activations, comparisons of tensors, distances and norms.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"
#include "models/exported/lower/reductions.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

constexpr float kUnbounded = std::numeric_limits<float>::infinity();

// Lowers an operator of tensors or numbers, by the names of its arguments.
template <class F>
void lower_function(Lowering& l, const Node& node, const F& f,
                    std::initializer_list<std::string_view> arguments) {
  std::vector<Value> values;
  for (const std::string_view argument : arguments) values.push_back(l.operand(node, argument));
  l.set(node, l.pointwise(node, f, std::move(values), l.result(node).type));
}

template <Formula (*kFormula)(const Formula&)>
void lower_one(Lowering& l, const Node& node) {
  lower_function(l, node, [](Formulas f) { return kFormula(f[0]); }, {"self"});
}

Formula rounded_up(const Formula& x) {
  return -rounded_down(-x);
}
Formula truncated_quotient(const Formula& a, const Formula& b) {
  return truncated(a / b);
}

// Quotients and remainders. An integer that is divided by 0 has none, and PyTorch stops there.
template <Formula (*kFormula)(const Formula&, const Formula&)>
void lower_division(Lowering& l, const Node& node) {
  if (!is_floating(l.result(node).type)) {
    const std::optional<Scalar> divisor = node.scalar("other");
    if (!divisor) Lowering::fail(node, "divides integers by a tensor, which is not supported");
    if (Lowering::real(node, "other") == 0) Lowering::fail(node, "divides integers by 0");
  }
  lower_function(l, node, [](Formulas f) { return kFormula(f[0], f[1]); }, {"self", "other"});
}

void lower_quotient(Lowering& l, const Node& node) {
  if (!node.has("rounding_mode"))
    return lower_function(l, node, [](Formulas f) { return f[0] / f[1]; }, {"self", "other"});
  if (node.text("rounding_mode") == "floor") return lower_division<floor_quotient>(l, node);
  lower_division<truncated_quotient>(l, node);
}

// Powers whose exponent is a tensor.
void lower_power(Lowering& l, const Node& node) {
  if (!is_floating(l.result(node).type))
    Lowering::fail(node, "makes powers of integers, which is not supported");
  lower_function(l, node, [](Formulas f) { return dstrain::power(f[0], f[1]); },
                 {"self", "exponent"});
}

template <Formula (*kFormula)(const Formula&, const Formula&)>
void lower_two(Lowering& l, const Node& node) {
  lower_function(l, node, [](Formulas f) { return kFormula(f[0], f[1]); }, {"self", "other"});
}

Formula hyperbolic_sine(const Formula& x) {
  return 0.5f * (exponential(x) - exponential(-x));
}
Formula hyperbolic_cosine(const Formula& x) {
  return 0.5f * (exponential(x) + exponential(-x));
}
Formula ratio_of_sine(const Formula& x) {
  return sine(x) / cosine(x);
}
Formula exponential_less_1(const Formula& x) {
  return exponential(x) - 1;
}
Formula logarithm_of_1_more(const Formula& x) {
  return logarithm(1 + x);
}
Formula logarithm_of_base_2(const Formula& x) {
  return 1.44269504f * logarithm(x);
}
Formula logarithm_of_base_10(const Formula& x) {
  return 0.434294482f * logarithm(x);
}
Formula relu_to_6(const Formula& x) {
  return clamped(x, 0, 6);
}
Formula selu(const Formula& x) {
  constexpr float kScale = 1.0507009873554805f, kAlpha = 1.6732632423543772f;
  return select(less(0, x), kScale * x, kScale * kAlpha * (exponential(minimum(x, 0)) - 1));
}
Formula is_nan(const Formula& x) {
  return 1 - is_number(x);
}
Formula is_infinite(const Formula& x) {
  return equal(absolute(x), kUnbounded);
}
Formula is_finite(const Formula& x) {
  return less(absolute(x), kUnbounded);
}
Formula differs(const Formula& a, const Formula& b) {
  return 1 - equal(equal(a, 0), equal(b, 0));
}
Formula length_of_both(const Formula& a, const Formula& b) {
  return square_root(a * a + b * b);
}

void lower_celu(Lowering& l, const Node& node) {
  const float alpha = Lowering::real(node, "alpha");
  lower_function(l, node,
                 [alpha](Formulas f) {
                   return select(less(0, f[0]), f[0],
                                 alpha * (exponential(minimum(f[0], 0) / alpha) - 1));
                 },
                 {"self"});
}

void lower_softshrink(Lowering& l, const Node& node) {
  const float limit = Lowering::real(node, "lambd");
  lower_function(l, node,
                 [limit](Formulas f) {
                   return select(less(limit, f[0]), f[0] - limit,
                                 select(less(f[0], -limit), f[0] + limit, 0));
                 },
                 {"self"});
}

// One slope for all, or one for each of the second dimension.
void lower_prelu(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  Value slope = l.operand(node, "weight");
  if (slope.shape.elements() == 1)
    slope = l.reshaped(slope, {});
  else
    for (int d = 2; d < x.shape.rank; ++d) slope = unsqueeze(slope, slope.shape.rank);
  l.set(node, l.pointwise(
                  node, [](Formulas f) { return select(less(0, f[0]), f[0], f[1] * f[0]); },
                  {x, slope}, x.type));
}

// Limits that are numbers, tensors or absent.
template <bool kLow, bool kHigh>
void lower_limits(Lowering& l, const Node& node) {
  std::vector<Value> values{l.operand(node, "self")};
  const bool low = kLow && node.has("min"), high = kHigh && node.has("max");
  if (low) values.push_back(l.operand(node, "min"));
  if (high) values.push_back(l.operand(node, "max"));
  l.set(node, l.pointwise(
                  node,
                  [=](Formulas f) {
                    // At a limit the gradient is the element's.
                    Formula y = f[0];
                    if (low) y = select(less(y, f[1]), f[1], y);
                    if (high) y = select(less(f[low ? 2 : 1], y), f[low ? 2 : 1], y);
                    return y;
                  },
                  std::move(values), l.result(node).type));
}

void lower_glu(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const int d = l.dimension(node, "dim", x.shape.rank);
  const int64_t half = x.shape[d] / 2;
  l.set(node, l.pointwise(
                  node, [](Formulas f) { return f[0] * sigmoid(f[1]); },
                  {slice(x, d, 0, half), slice(x, d, half, half)}, x.type));
}

void lower_nan_to_num(Lowering& l, const Node& node) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const auto number_of = [&node](std::string_view argument, float otherwise) {
    return node.has(argument) ? static_cast<float>(node.real(argument)) : otherwise;
  };
  const float nan = number_of("nan", 0), high = number_of("posinf", kMost),
              low = number_of("neginf", -kMost);
  lower_function(l, node,
                 [=](Formulas f) {
                   const Formula finite = select(equal(f[0], kUnbounded), high,
                                                 select(equal(f[0], -kUnbounded), low, f[0]));
                   return select(is_number(f[0]), finite, nan);
                 },
                 {"self"});
}

// A norm over dimensions: of 1, 2, infinity or another number above 0.
Value norm_of(Lowering& l, const Node& node, const Value& x, double order,
              const std::vector<int>& dimensions, bool keep) {
  if (std::isinf(order))
    return l.reduced(order > 0 ? Reduction::maximum : Reduction::minimum,
                     l.pointwise(
                         node, [](Formulas f) { return absolute(f[0]); }, {x}, x.type),
                     dimensions, keep);
  if (order <= 0) Lowering::fail(node, "has the order {}: expected one above 0", order);
  const Value powers = l.pointwise(
      node, [order](Formulas f) { return order == 2 ? f[0] * f[0] : power(absolute(f[0]), order); },
      {x}, x.type);
  const Value sum = l.reduced(Reduction::sum, powers, dimensions, keep);
  if (order == 1) return sum;
  // Where all elements are 0 the gradient is 0, as in PyTorch.
  return l.pointwise(
      node,
      [order](Formulas f) {
        const Formula positive = select(less(0, f[0]), f[0], 1);
        const Formula root = order == 2
                                 ? square_root(positive)
                                 : exponential(static_cast<float>(1 / order) * logarithm(positive));
        return select(less(0, f[0]), root, f[0]);
      },
      {l.computed(sum)}, x.type);
}

void lower_norm(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const std::string_view argument = node.find("ord") ? "ord" : "p";
  const double order = node.has(argument) ? static_cast<double>(Lowering::real(node, argument)) : 2;
  l.set(node,
        norm_of(l, node, x, order, l.dimensions(node, "dim", x.shape.rank), node.flag("keepdim")));
}

// The cosine of the angle between vectors along a dimension; their lengths are at least `eps`.
void lower_cosine_similarity(Lowering& l, const Node& node) {
  const Value a = l.operand(node, "x1"), b = l.operand(node, "x2");
  const std::optional<Shape> shape = broadcast(a.shape, b.shape);
  if (!shape) Lowering::fail(node, "has {} and {}", to_string(a.shape), to_string(b.shape));
  const int d = l.dimension(node, "dim", shape->rank);
  const auto eps = static_cast<float>(node.real("eps"));
  const auto sum = [&](const Value& x, const Value& y) {
    return l.reduced(Reduction::sum,
                     l.pointwise(
                         node, [](Formulas f) { return f[0] * f[1]; },
                         {expand(x, *shape), expand(y, *shape)}, x.type),
                     {d}, false);
  };
  l.set(node, l.pointwise(
                  node,
                  [eps](Formulas f) {
                    const auto length = [eps](const Formula& square) {
                      return square_root(clamped(square, eps * eps, kUnbounded));
                    };
                    return f[0] / (length(f[1]) * length(f[2]));
                  },
                  {sum(a, b), sum(a, a), sum(b, b)}, a.type));
}

// The product along a dimension, half by half, so that its gradient holds where an element is 0.
Value product_along(Lowering& l, const Node& node, Value x, int dimension) {
  while (x.shape[dimension] > 1) {
    x = l.computed(x);
    const int64_t size = x.shape[dimension], half = size / 2;
    const Value both = l.pointwise(
        node, [](Formulas f) { return f[0] * f[1]; },
        {slice(x, dimension, 0, half), slice(x, dimension, half, half)}, x.type);
    x = size % 2 == 0 ? both
                      : joined(l, {l.computed(both), slice(x, dimension, size - 1, 1)}, dimension);
  }
  return x;
}

void lower_product(Lowering& l, const Node& node) {
  Value x = l.operand(node, "self");
  if (!node.find("dim"))
    return l.set(node,
                 l.reshaped(product_along(l, node, l.reshaped(x, {x.shape.elements()}), 0), {}));
  const int d = l.dimension(node, "dim", x.shape.rank);
  x = product_along(l, node, std::move(x), d);
  l.set(node, node.flag("keepdim") ? x : squeeze(x, d));
}

constexpr LoweredOp kFunctions[] = {
    {"aten.ceil.default", lower_one<rounded_up>},
    {"aten.celu.default", lower_celu},
    {"aten.clamp.Tensor", lower_limits<true, true>},
    {"aten.clamp_max.default", lower_limits<false, true>},
    {"aten.clamp_min.Tensor", lower_limits<true, false>},
    {"aten.clamp_min.default", lower_limits<true, false>},
    {"aten.cosh.default", lower_one<hyperbolic_cosine>},
    {"aten.cosine_similarity.default", lower_cosine_similarity},
    {"aten.div.Scalar_mode", lower_quotient},
    {"aten.div.Tensor_mode", lower_quotient},
    {"aten.erf.default", lower_one<error_function>},
    {"aten.expm1.default", lower_one<exponential_less_1>},
    {"aten.floor.default", lower_one<rounded_down>},
    {"aten.floor_divide.Scalar", lower_division<floor_quotient>},
    {"aten.floor_divide.default", lower_division<floor_quotient>},
    {"aten.fmod.Scalar", lower_division<remainder>},
    {"aten.fmod.Tensor", lower_division<remainder>},
    {"aten.glu.default", lower_glu},
    {"aten.hypot.default", lower_two<length_of_both>},
    {"aten.isfinite.default", lower_one<is_finite>},
    {"aten.isinf.default", lower_one<is_infinite>},
    {"aten.isnan.default", lower_one<is_nan>},
    {"aten.lerp.Scalar",
     [](Lowering& l, const Node& node) {
       lower_function(l, node, [](Formulas f) { return f[0] + f[2] * (f[1] - f[0]); },
                      {"self", "end", "weight"});
     }},
    {"aten.lerp.Tensor",
     [](Lowering& l, const Node& node) {
       lower_function(l, node, [](Formulas f) { return f[0] + f[2] * (f[1] - f[0]); },
                      {"self", "end", "weight"});
     }},
    {"aten.linalg_vector_norm.default", lower_norm},
    {"aten.log10.default", lower_one<logarithm_of_base_10>},
    {"aten.log1p.default", lower_one<logarithm_of_1_more>},
    {"aten.log2.default", lower_one<logarithm_of_base_2>},
    {"aten.logical_xor.default", lower_two<differs>},
    {"aten.max.other", lower_two<larger>},
    {"aten.min.other", lower_two<smaller>},
    {"aten.nan_to_num.default", lower_nan_to_num},
    {"aten.norm.ScalarOpt_dim", lower_norm},
    {"aten.pow.Scalar", lower_power},
    {"aten.pow.Tensor_Tensor", lower_power},
    {"aten.prelu.default", lower_prelu},
    {"aten.prod.default", lower_product},
    {"aten.prod.dim_int", lower_product},
    {"aten.relu6.default", lower_one<relu_to_6>},
    {"aten.remainder.Scalar", lower_division<floor_remainder>},
    {"aten.remainder.Tensor", lower_division<floor_remainder>},
    {"aten.round.default", lower_one<rounded>},
    {"aten.selu.default", lower_one<selu>},
    {"aten.sinh.default", lower_one<hyperbolic_sine>},
    {"aten.softshrink.default", lower_softshrink},
    {"aten.tan.default", lower_one<ratio_of_sine>},
    {"aten.trunc.default", lower_one<truncated>},
};

}  // namespace

std::span<const LoweredOp> function_operators() {
  return kFunctions;
}

}  // namespace dstrain::exported
