// Operators that reduce dimensions.
#include "models/exported/lower/reductions.h"

#include <span>
#include <utility>

#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

// Returns how many elements each result has of a value.
double reduced_count(const Shape& shape, const std::vector<int>& dimensions) {
  double count = 1;
  for (const int d : dimensions) count *= static_cast<double>(shape[d]);
  return count;
}

template <Reduction kKind>
void lower_reduction(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  l.set(node, l.reduced(kKind, x, dimensions_of(l, node, x), keeps(node)));
}

void lower_mean(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  l.set(node, mean_of(l, node, x, dimensions_of(l, node, x), keeps(node)));
}

double correction_of(const Node& node) {
  if (node.find("unbiased")) return node.flag("unbiased") ? 1 : 0;
  if (!node.has("correction")) return 1;
  return std::visit([](auto v) { return static_cast<double>(v); }, *node.scalar("correction"));
}

Value own_variance(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const std::vector<int> dimensions = dimensions_of(l, node, x);
  const Value mean = l.computed(mean_of(l, node, x, dimensions, true));
  return variance_of(l, node, x, mean, dimensions, correction_of(node), keeps(node));
}

void lower_variance(Lowering& l, const Node& node) {
  l.set(node, own_variance(l, node));
}

void lower_deviation(Lowering& l, const Node& node) {
  Value variance = own_variance(l, node);
  variance.formula = square_root(variance.formula);
  l.set(node, std::move(variance));
}

void lower_softmax(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  l.set(node, softmax_of(l, node, x, l.dimension(node, "dim", x.shape.rank)));
}

void lower_log_softmax(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  l.set(node, log_softmax_of(l, node, x, l.dimension(node, "dim", x.shape.rank)));
}

// Returns the largest elements over a dimension, by which what a softmax takes the exponential of is shifted: the result does
// not depend on them, so no gradient goes through.
Value shift_of(Lowering& l, const Value& x, const std::vector<int>& dimensions) {
  return l.reduced(Reduction::maximum, x, dimensions, true, Lowering::Gradient::none);
}

// Returns the sums of exponentials of shifted elements.
Value exponential_sums(Lowering& l, const Node& node, const Value& x, const Value& shift,
                       const std::vector<int>& dimensions) {
  const Value exponentials = l.pointwise(
      node, [](Formulas f) { return exponential(f[0] - f[1]); }, {x, shift}, x.type);
  return l.reduced(Reduction::sum, exponentials, dimensions, true);
}

void lower_log_sum(Lowering& l, const Node& node) {
  const Value x = l.computed(l.operand(node, "self"));
  const std::vector<int> dimensions = dimensions_of(l, node, x);
  const Value shift = shift_of(l, x, dimensions);
  Value sum = l.pointwise(
      node, [](Formulas f) { return logarithm(f[0]) + f[1]; },
      {exponential_sums(l, node, x, shift, dimensions), shift}, x.type);
  if (!keeps(node))
    for (auto d = dimensions.rbegin(); d != dimensions.rend(); ++d)
      sum = squeeze(std::move(sum), *d);
  l.set(node, std::move(sum));
}

constexpr LoweredOp kReductions[] = {
    {"aten._log_softmax.default", lower_log_softmax},
    {"aten._softmax.default", lower_softmax},
    {"aten.amax.default", lower_reduction<Reduction::maximum>},
    {"aten.amin.default", lower_reduction<Reduction::minimum>},
    {"aten.log_softmax.int", lower_log_softmax},
    {"aten.logsumexp.default", lower_log_sum},
    {"aten.max.default", lower_reduction<Reduction::maximum>},
    {"aten.mean.default", lower_mean},
    {"aten.mean.dim", lower_mean},
    {"aten.min.default", lower_reduction<Reduction::minimum>},
    {"aten.softmax.int", lower_softmax},
    {"aten.std.correction", lower_deviation},
    {"aten.sum.default", lower_reduction<Reduction::sum>},
    {"aten.sum.dim_IntList", lower_reduction<Reduction::sum>},
    {"aten.var.correction", lower_variance},
    {"aten.var.dim", lower_variance},
};

}  // namespace

std::vector<int> all_dimensions(const Value& x) {
  std::vector<int> all;
  for (int d = 0; d < x.shape.rank; ++d) all.push_back(d);
  return all;
}

std::vector<int> dimensions_of(Lowering& l, const Node& node, const Value& x) {
  if (!node.find("dim") || !node.has("dim")) return all_dimensions(x);
  if (std::holds_alternative<Size>(*node.find("dim")))
    return {l.dimension(node, "dim", x.shape.rank)};
  return l.dimensions(node, "dim", x.shape.rank);
}

bool keeps(const Node& node) {
  return node.find("keepdim") && node.flag("keepdim");
}

Value scaled(Value x, double factor) {
  x.formula = x.formula * static_cast<float>(factor);
  return x;
}

Value mean_of(Lowering& l, const Node&, const Value& x, const std::vector<int>& dimensions,
              bool keep) {
  return scaled(l.reduced(Reduction::sum, x, dimensions, keep),
                1 / reduced_count(x.shape, dimensions));
}

Value variance_of(Lowering& l, const Node& node, const Value& x, const Value& mean,
                  const std::vector<int>& dimensions, double correction, bool keep) {
  // The distances add up to 0, and so does what goes back to the mean.
  const Value held = whole(l.builder().detached(l.dense(mean)), mean.shape, mean.type);
  const Value squares = l.pointwise(
      node, [](Formulas f) { return (f[0] - f[1]) * (f[0] - f[1]); }, {x, held}, x.type);
  return scaled(l.reduced(Reduction::sum, squares, dimensions, keep),
                1 / (reduced_count(x.shape, dimensions) - correction));
}

Value softmax_of(Lowering& l, const Node& node, const Value& of, int dimension) {
  const Value x = l.computed(of);
  const Value shift = shift_of(l, x, {dimension});
  return l.pointwise(
      node, [](Formulas f) { return exponential(f[0] - f[1]) / f[2]; },
      {x, shift, exponential_sums(l, node, x, shift, {dimension})}, x.type);
}

Value log_softmax_of(Lowering& l, const Node& node, const Value& of, int dimension) {
  const Value x = l.computed(of);
  const Value shift = shift_of(l, x, {dimension});
  return l.pointwise(
      node, [](Formulas f) { return f[0] - f[1] - logarithm(f[2]); },
      {x, shift, exponential_sums(l, node, x, shift, {dimension})}, x.type);
}

std::span<const LoweredOp> reduction_operators() {
  return kReductions;
}

}  // namespace dstrain::exported
