#include "models/exported/lower/operators.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

std::vector<LoweredOp> collect() {
  std::vector<LoweredOp> all;
  for (const std::span<const LoweredOp> kind :
       {pointwise_operators(),   truth_operators(),      view_operators(),
        join_operators(),        reduction_operators(),  product_operators(),
        norm_operators(),        attention_operators(),  lookup_operators(),
        convolution_operators(), pool_operators(),       recurrent_operators(),
        loss_operators(),        class_loss_operators(), function_operators(),
        scatter_operators(),     bag_operators(),        choice_operators(),
        resampling_operators(),  einsum_operators(),     replacement_operators(),
        sort_operators(),        scan_operators(),       random_operators()})
    all.insert(all.end(), kind.begin(), kind.end());
  std::ranges::sort(all, {}, &LoweredOp::target);
  return all;
}

// Where an operator that is not known is used.
struct Unknown {
  const Node* first = nullptr;
  int count = 0;
};

}  // namespace

const LoweredOp* find_operator(std::string_view target) {
  static const std::vector<LoweredOp> all = collect();
  const auto found = std::ranges::lower_bound(all, target, {}, &LoweredOp::target);
  return found != all.end() && found->target == target ? &*found : nullptr;
}

void check_operators(const Graph& graph) {
  std::map<std::string, Unknown> unknown;
  for (const Node& node : graph.nodes) {
    if (find_operator(node.target)) continue;
    Unknown& u = unknown[node.target];
    if (u.count++ == 0) u.first = &node;
  }
  if (unknown.empty()) return;
  std::string list;
  for (const auto& [target, u] : unknown) {
    list += fmt::format("\n  {}, {} node{}, first {}", target, u.count, u.count == 1 ? "" : "s",
                        describe(*u.first));
    if (!u.first->source.text.empty()) list += fmt::format(": {}", u.first->source.text);
  }
  fail_user("the graph has operators that are not supported:{}", list);
}

}  // namespace dstrain::exported
