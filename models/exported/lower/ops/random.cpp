// Operators that draw numbers. All are made of draws from [0, 1) by a counter (Builder::uniform), which follow from the sample
// and the place in it: the same in every layout of a run, and when a layer is computed again. No gradient goes into a draw; what
// is computed of it has one by its other operands.
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

constexpr double kMostIntegers = 1 << 24;  // that a draw tells apart

// Returns the dimension of a shape that counts samples, or some rows of each: one of as many, or else the first one.
int dimension_of_samples(const Shape& shape, int64_t batch) {
  if (batch > 1)
    for (int d = 0; d < shape.rank; ++d)
      if (shape[d] == batch) return d;
  return shape.rank > 0 && shape[0] % batch == 0 ? 0 : Builder::kNoSamples;
}

// Returns numbers from [0, 1).
Value uniform(Lowering& l, const Shape& shape) {
  const int dimension = dimension_of_samples(shape, l.batch());
  return whole(l.builder().uniform(space_of(shape), dimension), shape, ScalarType::f32);
}

// Returns numbers of the normal distribution with mean 0 and variance 1 (Box and Muller, 1958), in memory: what reads them keeps
// them, and not the two draws.
Value normal(Lowering& l, const Node& node, const Shape& shape) {
  constexpr auto turn = static_cast<float>(2 * std::numbers::pi);
  const Value length = uniform(l, shape), angle = uniform(l, shape);
  return l.computed(l.pointwise(
      node, [](Formulas f) { return square_root(-2 * logarithm(1 - f[0])) * cosine(turn * f[1]); },
      {length, angle}, ScalarType::f32));
}

// Returns a value through which no gradient goes back.
Value held(Lowering& l, const Value& value) {
  if (value.operands.empty()) return value;
  return whole(l.builder().detached(l.dense(value)), value.shape, value.type);
}

// Sets the result to a function of draws from [0, 1).
template <class F>
void set_of_uniform(Lowering& l, const Node& node, const F& f) {
  l.set(node, l.pointwise(
                  node, [&f](Formulas x) { return f(x[0]); },
                  {uniform(l, l.shape_of(node.outputs[0]))}, l.result(node).type));
}

void lower_rand(Lowering& l, const Node& node) {
  l.set(node, uniform(l, l.shape_of(node.outputs[0])));
}

void lower_uniform(Lowering& l, const Node& node) {
  const float from = Lowering::real(node, "from"), to = Lowering::real(node, "to");
  set_of_uniform(l, node, [=](const Formula& x) { return from + (to - from) * x; });
}

void lower_exponential(Lowering& l, const Node& node) {
  const float rate = Lowering::real(node, "lambd");
  set_of_uniform(l, node, [=](const Formula& x) { return -logarithm(1 - x) / rate; });
}

void lower_randn(Lowering& l, const Node& node) {
  l.set(node, normal(l, node, l.shape_of(node.outputs[0])));
}

// Numbers with a mean and a standard deviation, which may be tensors.
void lower_normal(Lowering& l, const Node& node) {
  const Value x = normal(l, node, l.shape_of(node.outputs[0]));
  l.set(node, held(l, l.pointwise(
                          node, [](Formulas f) { return f[0] + f[1] * f[2]; },
                          {l.operand(node, "mean"), l.operand(node, "std"), x}, x.type)));
}

// Integers from `low` up to `high`, without it.
void lower_randint(Lowering& l, const Node& node) {
  const int64_t low = node.find("low") ? node.whole("low") : 0, high = node.whole("high");
  const double count = static_cast<double>(high) - static_cast<double>(low);
  if (count < 1 || count > kMostIntegers)
    Lowering::fail(node, "draws from {} integers: expected 1 to {}", count, kMostIntegers);
  const auto first = static_cast<float>(low), most = static_cast<float>(count);
  set_of_uniform(
      l, node, [=](const Formula& x) { return first + minimum(rounded_down(most * x), most - 1); });
}

// 1 with a probability that is a number or each element's own, else 0.
void lower_bernoulli(Lowering& l, const Node& node) {
  const Value p = l.operand(node, node.find("p") ? "p" : "self");
  l.set(node, l.pointwise(
                  node, [](Formulas f) { return less(f[0], f[1]); },
                  {uniform(l, l.shape_of(node.outputs[0])), p}, l.result(node).type));
}

// The integers below n in a random order: that of as many draws.
void lower_randperm(Lowering& l, const Node& node) {
  const Shape shape = l.shape_of(node.outputs[0]);
  const BufferId drawn = l.builder().uniform(shape, Builder::kNoSamples);
  const SortAttrs attrs{.lines = {.size = shape[0], .apart = 1}, .kept = shape[0]};
  l.set(node, whole(l.builder().sort(drawn, attrs), shape, ScalarType::i64));
}

constexpr LoweredOp kRandom[] = {
    {"aten.bernoulli.Tensor", lower_bernoulli},
    {"aten.bernoulli.default", lower_bernoulli},
    {"aten.bernoulli.p", lower_bernoulli},
    {"aten.exponential.default", lower_exponential},
    {"aten.normal.Tensor_Tensor", lower_normal},
    {"aten.normal.Tensor_float", lower_normal},
    {"aten.normal.float_Tensor", lower_normal},
    {"aten.normal.float_float", lower_normal},
    {"aten.normal_functional.default", lower_normal},
    {"aten.rand.default", lower_rand},
    {"aten.rand_like.default", lower_rand},
    {"aten.randint.default", lower_randint},
    {"aten.randint.low", lower_randint},
    {"aten.randint_like.default", lower_randint},
    {"aten.randint_like.low_dtype", lower_randint},
    {"aten.randn.default", lower_randn},
    {"aten.randn_like.default", lower_randn},
    {"aten.randperm.default", lower_randperm},
    {"aten.uniform.default", lower_uniform},
};

}  // namespace

std::span<const LoweredOp> random_operators() {
  return kRandom;
}

}  // namespace dstrain::exported
