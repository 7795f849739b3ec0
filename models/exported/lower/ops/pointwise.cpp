// Operators that compute each element by itself.
#include <cmath>
#include <limits>
#include <span>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

ScalarType type_of(Lowering& l, const Node& node) {
  return l.result(node).type;
}

// Lowers an operator of one tensor.
template <class F>
void unary(Lowering& l, const Node& node, const F& f) {
  l.set(node, l.pointwise(
                  node, [&f](Formulas x) { return f(x[0]); }, {l.bounded_operand(node, "self")},
                  type_of(l, node)));
}

// Lowers an operator of two tensors, or of a tensor and a number.
template <class F>
void binary(Lowering& l, const Node& node, const F& f, std::string_view second = "other") {
  l.set(node,
        l.pointwise(
            node, [&f](Formulas x) { return f(x[0], x[1]); },
            {l.bounded_operand(node, "self"), l.bounded_operand(node, second)}, type_of(l, node)));
}

// Returns the number that an argument is, or `otherwise` where it is None.
float real_or(const Node& node, std::string_view argument, float otherwise) {
  return node.has(argument) ? Lowering::real(node, argument) : otherwise;
}

template <Formula (*kFormula)(const Formula&)>
void lower_unary(Lowering& l, const Node& node) {
  unary(l, node, kFormula);
}

template <Formula (*kFormula)(const Formula&, const Formula&)>
void lower_binary(Lowering& l, const Node& node) {
  binary(l, node, kFormula);
}

void lower_add(Lowering& l, const Node& node) {
  binary(l, node, [a = Lowering::real(node, "alpha")](const Formula& x, const Formula& y) {
    return a == 1 ? x + y : x + a * y;
  });
}

void lower_sub(Lowering& l, const Node& node) {
  binary(l, node, [a = Lowering::real(node, "alpha")](const Formula& x, const Formula& y) {
    return a == 1 ? x - y : x - a * y;
  });
}

void lower_rsub(Lowering& l, const Node& node) {
  binary(l, node, [a = Lowering::real(node, "alpha")](const Formula& x, const Formula& y) {
    return y - a * x;
  });
}

void lower_power(Lowering& l, const Node& node) {
  unary(l, node, [e = Lowering::real(node, "exponent")](const Formula& x) { return power(x, e); });
}

void lower_gelu(Lowering& l, const Node& node) {
  if (node.text("approximate") == "tanh") return unary(l, node, gelu);
  const Value x = l.operand(node, "self");
  if (x.operands.empty()) Lowering::fail(node, "is of a constant");
  Builder& b = l.builder();
  l.set(node, whole(b.activation(l.dense(x), Activation::gelu_erf), x.shape, x.type));
}

void lower_relu(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  if (!x.is_dense()) return unary(l, node, relu);
  l.set(node, whole(l.builder().activation(l.dense(x), Activation::relu), x.shape, x.type));
}

void lower_clamp(Lowering& l, const Node& node) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float low = real_or(node, "min", -kInfinity), high = real_or(node, "max", kInfinity);
  unary(l, node, [=](const Formula& x) { return clamped(x, low, high); });
}

void lower_leaky_relu(Lowering& l, const Node& node) {
  unary(l, node, [slope = Lowering::real(node, "negative_slope")](const Formula& x) {
    return select(less(0, x), x, slope * x);
  });
}

void lower_elu(Lowering& l, const Node& node) {
  const float alpha = Lowering::real(node, "alpha"), scale = Lowering::real(node, "scale"),
              inner = Lowering::real(node, "input_scale");
  unary(l, node, [=](const Formula& x) {
    // The exponential of a large number would make the other branch's gradient NaN.
    return select(less(0, x), scale * x, scale * alpha * (exponential(inner * minimum(x, 0)) - 1));
  });
}

void lower_softplus(Lowering& l, const Node& node) {
  const float beta = Lowering::real(node, "beta"), threshold = Lowering::real(node, "threshold");
  unary(l, node, [=](const Formula& x) {
    const Formula y = beta * x;
    return select(less(threshold, y), x,
                  (maximum(y, 0) + logarithm(1 + exponential(-absolute(y)))) / beta);
  });
}

void lower_where(Lowering& l, const Node& node) {
  l.set(node, l.pointwise(
                  node, [](Formulas x) { return select(x[0], x[1], x[2]); },
                  {l.bounded_operand(node, "condition"), l.bounded_operand(node, "self"),
                   l.bounded_operand(node, "other")},
                  type_of(l, node)));
}

void lower_masked_fill(Lowering& l, const Node& node) {
  l.set(node, l.pointwise(
                  node, [](Formulas x) { return select(x[1], x[2], x[0]); },
                  {l.bounded_operand(node, "self"), l.bounded_operand(node, "mask"),
                   l.bounded_operand(node, "value")},
                  type_of(l, node)));
}

void lower_addcmul(Lowering& l, const Node& node) {
  l.set(
      node,
      l.pointwise(
          node, [v = Lowering::real(node, "value")](Formulas x) { return x[0] + v * x[1] * x[2]; },
          {l.bounded_operand(node, "self"), l.bounded_operand(node, "tensor1"),
           l.bounded_operand(node, "tensor2")},
          type_of(l, node)));
}

void lower_addcdiv(Lowering& l, const Node& node) {
  l.set(
      node,
      l.pointwise(
          node, [v = Lowering::real(node, "value")](Formulas x) { return x[0] + v * x[1] / x[2]; },
          {l.bounded_operand(node, "self"), l.bounded_operand(node, "tensor1"),
           l.bounded_operand(node, "tensor2")},
          type_of(l, node)));
}

// Another element type. A fraction loses what is behind the point where it becomes an integer.
void lower_to(Lowering& l, const Node& node) {
  Value x = l.operand(node, "self");
  const ScalarType to = type_of(l, node);
  const bool truth = to == ScalarType::boolean && x.type != ScalarType::boolean;
  if (is_floating(x.type) && !is_floating(to) && !truth) return unary(l, node, truncated);
  if (truth) return unary(l, node, [](const Formula& f) { return 1 - equal(f, 0); });
  l.set(node, std::move(x));
}

void lower_broadcast_tensors(Lowering& l, const Node& node) {
  const std::vector<Value> values = l.operands(node, "tensors");
  for (size_t i = 0; i < values.size(); ++i)
    if (node.outputs[i]) l.set(node, expand(values[i], l.shape_of(node.outputs[i])), i);
}

Formula product_of(const Formula& a, const Formula& b) {
  return a * b;
}
Formula quotient(const Formula& a, const Formula& b) {
  return a / b;
}
Formula negative(const Formula& x) {
  return -x;
}
Formula inverse(const Formula& x) {
  return 1 / x;
}
Formula inverse_root(const Formula& x) {
  return 1 / square_root(x);
}
Formula square(const Formula& x) {
  return x * x;
}
Formula opposite(const Formula& x) {
  return 1 - x;
}
Formula truth_of(const Formula& x) {
  return 1 - equal(x, 0);
}
Formula not_equal(const Formula& a, const Formula& b) {
  return 1 - equal(a, b);
}
Formula greater(const Formula& a, const Formula& b) {
  return less(b, a);
}
Formula greater_or_equal(const Formula& a, const Formula& b) {
  return less_or_equal(b, a);
}
Formula both(const Formula& a, const Formula& b) {
  return truth_of(a) * truth_of(b);
}
Formula either(const Formula& a, const Formula& b) {
  return maximum(truth_of(a), truth_of(b));
}
Formula negation(const Formula& x) {
  return equal(x, 0);
}
// log(1 + exp(x)) of -|x| is exact where exp(x) is not too large.
Formula log_sigmoid(const Formula& x) {
  return minimum(x, 0) - logarithm(1 + exponential(-absolute(x)));
}
Formula sign(const Formula& x) {
  return less(0, x) - less(x, 0);
}
Formula hard_sigmoid(const Formula& x) {
  return minimum(maximum(x + 3, 0), 6) / 6;
}
Formula hard_swish(const Formula& x) {
  return x * hard_sigmoid(x);
}
Formula mish(const Formula& x) {
  return x * tangent(maximum(x, 0) + logarithm(1 + exponential(-absolute(x))));
}

constexpr LoweredOp kPointwise[] = {
    {"aten.abs.default", lower_unary<absolute>},
    {"aten.add.Scalar", lower_add},
    {"aten.add.Tensor", lower_add},
    {"aten.addcdiv.default", lower_addcdiv},
    {"aten.addcmul.default", lower_addcmul},
    {"aten.clamp.default", lower_clamp},
    {"aten.cos.default", lower_unary<cosine>},
    {"aten.div.Scalar", lower_binary<quotient>},
    {"aten.div.Tensor", lower_binary<quotient>},
    {"aten.elu.default", lower_elu},
    {"aten.eq.Scalar", lower_binary<equal>},
    {"aten.eq.Tensor", lower_binary<equal>},
    {"aten.exp.default", lower_unary<exponential>},
    {"aten.ge.Scalar", lower_binary<greater_or_equal>},
    {"aten.ge.Tensor", lower_binary<greater_or_equal>},
    {"aten.gelu.default", lower_gelu},
    {"aten.gt.Scalar", lower_binary<greater>},
    {"aten.gt.Tensor", lower_binary<greater>},
    {"aten.hardsigmoid.default", lower_unary<hard_sigmoid>},
    {"aten.hardswish.default", lower_unary<hard_swish>},
    {"aten.hardtanh.default",
     [](Lowering& l, const Node& node) {
       const float low = Lowering::real(node, "min_val"), high = Lowering::real(node, "max_val");
       unary(l, node, [=](const Formula& x) { return minimum(maximum(x, low), high); });
     }},
    {"aten.le.Scalar", lower_binary<less_or_equal>},
    {"aten.le.Tensor", lower_binary<less_or_equal>},
    {"aten.leaky_relu.default", lower_leaky_relu},
    {"aten.log.default", lower_unary<logarithm>},
    {"aten.log_sigmoid.default", lower_unary<log_sigmoid>},
    {"aten.logical_and.default", lower_binary<both>},
    {"aten.logical_not.default", lower_unary<negation>},
    {"aten.logical_or.default", lower_binary<either>},
    {"aten.lt.Scalar", lower_binary<less>},
    {"aten.lt.Tensor", lower_binary<less>},
    {"aten.masked_fill.Scalar", lower_masked_fill},
    {"aten.masked_fill.Tensor", lower_masked_fill},
    {"aten.maximum.default", lower_binary<larger>},
    {"aten.minimum.default", lower_binary<smaller>},
    {"aten.mish.default", lower_unary<mish>},
    {"aten.mul.Scalar", lower_binary<product_of>},
    {"aten.mul.Tensor", lower_binary<product_of>},
    {"aten.ne.Scalar", lower_binary<not_equal>},
    {"aten.ne.Tensor", lower_binary<not_equal>},
    {"aten.neg.default", lower_unary<negative>},
    {"aten.pow.Tensor_Scalar", lower_power},
    {"aten.reciprocal.default", lower_unary<inverse>},
    {"aten.relu.default", lower_relu},
    {"aten.rsqrt.default", lower_unary<inverse_root>},
    {"aten.rsub.Scalar", lower_rsub},
    {"aten.rsub.Tensor", lower_rsub},
    {"aten.sigmoid.default", lower_unary<sigmoid>},
    {"aten.sign.default", lower_unary<sign>},
    {"aten.silu.default", lower_unary<silu>},
    {"aten.sin.default", lower_unary<sine>},
    {"aten.softplus.default", lower_softplus},
    {"aten.sqrt.default", lower_unary<square_root>},
    {"aten.square.default", lower_unary<square>},
    {"aten.sub.Scalar", lower_sub},
    {"aten.sub.Tensor", lower_sub},
    {"aten.tanh.default", lower_unary<tangent>},
    {"aten.where.Scalar", lower_where},
    {"aten.where.ScalarOther", lower_where},
    {"aten.where.ScalarSelf", lower_where},
    {"aten.where.self", lower_where},
    {"aten._to_copy.default", lower_to},
    {"aten.to.device", lower_to},
    {"aten.to.dtype", lower_to},
    {"aten.to.dtype_layout", lower_to},
    {"aten.to.other", lower_to},
    {"aten.type_as.default", lower_to},
    {"aten.broadcast_tensors.default", lower_broadcast_tensors},
    {"aten.bitwise_not.default",
     [](Lowering& l, const Node& node) {
       if (l.operand(node, "self").type != ScalarType::boolean)
         Lowering::fail(node, "is supported of truth values alone");
       unary(l, node, opposite);
     }},
};

// Bitwise operators, of truth values alone.
template <Formula (*kFormula)(const Formula&, const Formula&)>
void lower_truths(Lowering& l, const Node& node) {
  if (l.operand(node, "self").type != ScalarType::boolean ||
      l.operand(node, "other").type != ScalarType::boolean)
    Lowering::fail(node, "is supported of truth values alone");
  binary(l, node, kFormula);
}

constexpr LoweredOp kTruths[] = {
    {"aten.__and__.Tensor", lower_truths<both>},
    {"aten.__or__.Tensor", lower_truths<either>},
    {"aten.bitwise_and.Tensor", lower_truths<both>},
    {"aten.bitwise_or.Tensor", lower_truths<either>},
};

}  // namespace

std::span<const LoweredOp> pointwise_operators() {
  return kPointwise;
}

std::span<const LoweredOp> truth_operators() {
  return kTruths;
}

}  // namespace dstrain::exported
