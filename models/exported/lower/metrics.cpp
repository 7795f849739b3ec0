#include "models/exported/lower/metrics.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "models/exported/lower/loss_mean.h"
#include "models/exported/lower/lowering.h"
#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

// The members of metrics.jsonl that every run may have (docs/formats.md).
constexpr std::array<std::string_view, 15> kOfEveryRun = {
    "step",       "loss",       "lr",         "grad_norm",  "loss_scale",         "skipped",
    "tokens",     "step_ms",    "peak_bytes", "comm_bytes", "samples_per_second", "losses",
    "host_bytes", "disk_bytes", "codec_error"};

bool is_number(const Graph& graph, const GraphOutput& output) {
  return output.kind == OutputKind::user && output.tensor &&
         graph.tensor(output.tensor).sizes.empty();
}

// Returns the places of the nodes that tensors depend on.
std::set<size_t> places_behind(const Graph& graph, const std::vector<TensorRef>& tensors) {
  std::set<int32_t> needed;
  for (const TensorRef ref : tensors) needed.insert(ref.id);
  std::set<size_t> nodes;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (std::ranges::none_of(node.outputs, [&](TensorRef r) { return needed.contains(r.id); }))
      continue;
    nodes.insert(n);
    for_each_operand(node, [&needed](TensorRef ref) { needed.insert(ref.id); });
  }
  return nodes;
}

}  // namespace

std::vector<GraphOutput> metric_outputs(const Graph& graph, const GraphFacts& facts,
                                        std::vector<LostMetric>* lost) {
  const TensorRef loss = loss_output(graph).tensor, weight = weight_output(graph, facts);
  std::set<size_t> of_loss = places_behind(graph, {loss, weight ? weight : loss});
  std::vector<GraphOutput> metrics;
  for (const GraphOutput& output : graph.outputs) {
    if (!is_number(graph, output) || output.tensor == loss || output.tensor == weight) continue;
    const std::set<size_t> nodes = places_behind(graph, {output.tensor});
    const auto unknown = std::ranges::find_if(nodes, [&](size_t n) {
      return !of_loss.contains(n) && !find_operator(graph.nodes[n].target);
    });
    if (unknown == nodes.end()) {
      if (std::ranges::find(kOfEveryRun, output.name) != kOfEveryRun.end())
        fail_user(
            "the graph returns {} as a metric, which every run has of its own: give it another "
            "name",
            output.name);
      metrics.push_back(output);
    } else if (lost) {
      lost->push_back({output.name, describe(graph.nodes[*unknown])});
    }
  }
  if (metrics.size() > Builder::kMostMetrics)
    fail_user("the graph returns {} numbers beside its loss: expected at most {}", metrics.size(),
              Builder::kMostMetrics);
  return metrics;
}

void emit_metric(Lowering& lowering, const GraphOutput& metric, const LossMean& mean) {
  Node self;
  self.name = metric.name;
  self.target = "metric";
  const Value value = lowering.value(metric.tensor);
  Value product;
  if (mean.weight) {
    product = weighed(lowering, self, value, lowering.value(mean.weight));
  } else {
    Value factor = number(static_cast<double>(lowering.batch()));
    if (mean.labels) factor = count_of(lowering, self, lowering.value(mean.labels));
    product = lowering.pointwise(
        self, [](std::span<const Formula> x) { return x[0] * x[1]; }, {value, factor},
        ScalarType::f32);
  }
  lowering.builder().metric(lowering.exact(product), mean.by, metric.name);
}

}  // namespace dstrain::exported
