#include "models/exported/lower/loss_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

bool is_loss(const Graph& graph, const GraphOutput& output) {
  const TensorInfo& tensor = graph.tensor(output.tensor);
  return output.kind == OutputKind::user && tensor.sizes.empty() && is_floating(tensor.type);
}

std::optional<double> number_of(const Node& node, std::string_view argument) {
  const std::optional<Scalar> scalar = node.scalar(argument);
  if (!scalar) return std::nullopt;
  return std::visit([](auto x) { return static_cast<double>(x); }, *scalar);
}

class Terms {
 public:
  Terms(const Graph& graph, size_t most, const std::vector<GraphOutput>& metrics)
      : graph_(graph), most_(most) {
    for (const GraphOutput& metric : metrics) metrics_.insert(metric.tensor.id);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const TensorRef ref : graph.nodes[n].outputs)
        if (ref) makers_[ref.id] = n;
      for_each_operand(graph.nodes[n], [this](TensorRef ref) { ++uses_[ref.id]; });
    }
  }

  LossTerms of(TensorRef loss) {
    result_.terms = {{loss, 1}};
    for (size_t t = 0; t < result_.terms.size();)
      if (!divide(t)) ++t;
    return result_;
  }

 private:
  // Puts what term `t` is a sum of in its place. Returns whether it is one.
  bool divide(size_t t) {
    const LossTerm term = result_.terms[t];
    const auto maker = makers_.find(term.tensor.id);
    if (maker == makers_.end() || metrics_.contains(term.tensor.id) ||
        uses_[term.tensor.id] > (t == 0 && result_.sums.empty() ? 0 : 1))
      return false;
    const std::vector<LossTerm> parts = parts_of(graph_.nodes[maker->second], term.weight);
    if (parts.empty() || result_.terms.size() - 1 + parts.size() > most_) return false;
    const bool scalars = std::ranges::all_of(parts, [this](const LossTerm& part) {
      return graph_.tensor(part.tensor).sizes.empty() &&
             is_floating(graph_.tensor(part.tensor).type);
    });
    if (!scalars) return false;
    result_.sums.push_back(maker->second);
    result_.terms.erase(result_.terms.begin() + static_cast<std::ptrdiff_t>(t));
    result_.terms.insert(result_.terms.begin() + static_cast<std::ptrdiff_t>(t), parts.begin(),
                         parts.end());
    return true;
  }

  static std::vector<LossTerm> parts_of(const Node& node, double weight) {
    if (node.target == "aten.add.Tensor" || node.target == "aten.sub.Tensor") {
      const std::optional<double> alpha = number_of(node, "alpha");
      if (!alpha || number_of(node, "self") || number_of(node, "other")) return {};
      const double sign = node.target == "aten.add.Tensor" ? 1 : -1;
      return {{node.tensor("self"), weight}, {node.tensor("other"), weight * sign * *alpha}};
    }
    if (node.target == "aten.neg.default") return {{node.tensor("self"), -weight}};
    const bool multiplies = node.target == "aten.mul.Tensor" || node.target == "aten.mul.Scalar";
    const bool divides = node.target == "aten.div.Tensor" || node.target == "aten.div.Scalar";
    if (!multiplies && !divides) return {};
    const std::optional<double> factor = number_of(node, "other");
    if (!factor || number_of(node, "self") || (divides && *factor == 0)) return {};
    return {{node.tensor("self"), multiplies ? weight * *factor : weight / *factor}};
  }

  const Graph& graph_;
  size_t most_;
  std::map<int32_t, size_t> makers_;  // nodes by their outputs
  std::map<int32_t, int> uses_;
  std::set<int32_t> metrics_;
  LossTerms result_;
};

}  // namespace

const GraphOutput& loss_output(const Graph& graph) {
  const auto named = std::ranges::find_if(graph.outputs, [&](const GraphOutput& output) {
    return output.name == "loss" && is_loss(graph, output);
  });
  if (named != graph.outputs.end()) return *named;
  const auto first = std::ranges::find_if(
      graph.outputs, [&](const GraphOutput& output) { return is_loss(graph, output); });
  if (first != graph.outputs.end()) return *first;
  fail_user(
      "the graph returns no loss: expected a fraction without dimensions among its outputs; export "
      "a module whose forward() returns the loss of a batch");
}

LossTerms loss_terms(const Graph& graph, size_t most, const std::vector<GraphOutput>& metrics) {
  return Terms(graph, most, metrics).of(loss_output(graph).tensor);
}

}  // namespace dstrain::exported
