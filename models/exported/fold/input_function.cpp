#include "models/exported/fold/input_function.h"

#include <algorithm>
#include <utility>

#include "models/exported/fold/elements.h"
#include "models/exported/fold/evaluate.h"
#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

constexpr int64_t kIgnored = -100;  // PyTorch's label that does not count

// Returns the elements of an input as the graph has them.
HostTensor host_value(FoldBudget& budget, const TensorInfo& info, const Tensor& given,
                      bool unshifted) {
  Sizes sizes;
  for (const Size& size : info.sizes) sizes.push_back(size.value());
  HostTensor value = make_tensor(budget, info.type, sizes);
  check(value.elements() == given.elements(), "input {} has {} elements, expected {}", info.name,
        given.elements(), value.elements());
  const auto store = storer_of<double>(info.type);
  const int64_t bytes = size_of(info.type), length = sizes.empty() ? 1 : sizes.back();
  for (int64_t i = 0; i < given.elements(); ++i) {
    const int64_t at = unshifted ? i - 1 : i;
    double x = kIgnored;
    if (!unshifted || i % length > 0)
      x = given.dtype == DType::f32 ? static_cast<double>(given.as<const float>()[at])
                                    : static_cast<double>(given.as<const int32_t>()[at]);
    store(value.data.get() + i * bytes, x);
  }
  return value;
}

}  // namespace

InputFunction::InputFunction(const FoldedGraph& folded, TensorRef result, std::string unshifted)
    : folded_(folded), result_(result), unshifted_(std::move(unshifted)) {
  need(result);
}

void InputFunction::need(TensorRef ref) {
  if (folded_.constants.contains(ref.id)) return;
  const Graph& graph = folded_.graph;
  for (const GraphInput& input : graph.inputs) {
    if (input.tensor != ref) continue;
    if (input.kind != InputKind::user)
      fail_user(
          "it depends on {}, which training changes: expected a number that follows from the "
          "inputs alone",
          input.name);
    inputs_.insert(input.name);
    return;
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (std::ranges::find(node.outputs, ref) == node.outputs.end()) continue;
    if (!nodes_.insert(n).second) return;
    for_each_operand(node, [this](TensorRef operand) {
      if (operand) need(operand);
    });
    if (!find_evaluated(node.target))
      fail_user("it depends on {}, which the host does not compute", describe(node));
    return;
  }
  check(false, "tensor {} has no value", graph.tensor(ref).name);
}

double InputFunction::value(std::span<const InputTensor> batch) const {
  const Graph& graph = folded_.graph;
  FoldBudget budget{FoldLimits{}};
  Constants values = folded_.constants;
  try {
    for (const GraphInput& input : graph.inputs) {
      if (!inputs_.contains(input.name)) continue;
      const auto given = std::ranges::find(batch, input.name, &InputTensor::name);
      check(given != batch.end(), "the batch has no input {}", input.name);
      values.emplace(input.tensor.id, host_value(budget, graph.tensor(input.tensor), given->tensor,
                                                 input.name == unshifted_));
    }
    for (const size_t n : nodes_) {
      const Node& node = graph.nodes[n];
      std::vector<HostTensor> results =
          evaluate(*find_evaluated(node.target), Operands(graph, node, values, budget));
      for (size_t i = 0; i < results.size(); ++i)
        if (node.outputs[i]) values.insert_or_assign(node.outputs[i].id, std::move(results[i]));
    }
    const HostTensor& result = values.at(result_.id);
    return loader_of<double>(result.type)(result.data.get() + result.offset * size_of(result.type));
  } catch (const LeftError& e) {
    fail_run("{}", e.what());
  }
}

}  // namespace dstrain::exported
