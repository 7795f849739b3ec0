#include "models/exported/fold/identities.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace dstrain::exported {
namespace {

// With the sizes and the type of their operand `self` these give it back.
constexpr std::array<std::string_view, 19> kKeepOrder = {
    "aten._to_copy.default",  "aten._unsafe_view.default", "aten.alias.default",
    "aten.clone.default",     "aten.contiguous.default",   "aten.expand.default",
    "aten.expand_as.default", "aten.flatten.using_ints",   "aten.lift_fresh_copy.default",
    "aten.repeat.default",    "aten.reshape.default",      "aten.slice.Tensor",
    "aten.squeeze.dim",       "aten.squeeze.dims",         "aten.to.device",
    "aten.to.dtype",          "aten.to.dtype_layout",      "aten.type_as.default",
    "aten.view.default"};

// With nothing to put anywhere these give their operand `self` back.
constexpr std::array<std::string_view, 8> kPut = {
    "aten.index_add.default",   "aten.index_copy.default", "aten.index_fill.int_Scalar",
    "aten.index_put.default",   "aten.scatter.src",        "aten.scatter.value",
    "aten.scatter_add.default", "aten.scatter_reduce.two"};

// Returns whether a node takes a tensor without elements.
bool takes_empty(const Graph& graph, const Node& node) {
  bool takes = false;
  for_each_operand(node,
                   [&](TensorRef ref) { takes = takes || (ref && is_empty(graph.tensor(ref))); });
  return takes;
}

bool is_cat(const Node& node) {
  return node.target == "aten.cat.default" && node.schema;
}

bool same_kind(const TensorInfo& a, const TensorInfo& b) {
  return a.type == b.type && a.sizes == b.sizes;
}

}  // namespace

std::vector<TensorRef> drop_empty_parts(const Graph& graph, Node& node) {
  std::vector<TensorRef> dropped;
  if (!is_cat(node) || node.outputs.size() != 1 || !node.outputs[0]) return dropped;
  for (auto& [name, argument] : node.arguments) {
    auto* const parts = std::get_if<std::vector<TensorRef>>(&argument);
    if (!parts) continue;
    const auto is_part_empty = [&](TensorRef ref) { return is_empty(graph.tensor(ref)); };
    // They count for the type of the result.
    const auto decides = [&](TensorRef ref) {
      return !is_part_empty(ref) && graph.tensor(ref).type == graph.tensor(node.outputs[0]).type;
    };
    if (std::ranges::none_of(*parts, decides)) continue;
    std::ranges::copy_if(*parts, std::back_inserter(dropped), is_part_empty);
    std::erase_if(*parts, is_part_empty);
  }
  return dropped;
}

TensorRef identity_of(const Graph& graph, const Node& node) {
  if (!node.schema || node.outputs.size() != 1 || !node.outputs[0]) return {};
  TensorRef operand;
  if (is_cat(node)) {
    const std::vector<TensorRef>& parts = node.tensors("tensors");
    if (parts.size() == 1) operand = parts[0];
  } else if ((std::ranges::binary_search(kKeepOrder, node.target) && !node.scalar("self")) ||
             (std::ranges::binary_search(kPut, node.target) && takes_empty(graph, node))) {
    operand = node.tensor("self");
  }
  const bool same = operand && same_kind(graph.tensor(operand), graph.tensor(node.outputs[0]));
  return same ? operand : TensorRef();
}

}  // namespace dstrain::exported
