#include "models/exported/fold/fold.h"

#include <algorithm>
#include <set>
#include <utility>

#include "models/exported/fold/elements.h"
#include "models/exported/fold/evaluate.h"
#include "models/exported/fold/identities.h"

namespace dstrain::exported {
namespace {

bool is_check(const Node& node) {
  return node.outputs.empty() && node.target.starts_with("aten._assert");
}

class Folder {
 public:
  Folder(const ExportedModel& model, Graph graph, const FoldOptions& options)
      : model_(model), options_(options), budget_(options.limits) {
    result_.graph = std::move(graph);
  }

  FoldedGraph run() {
    count_uses();
    load_constants();
    std::vector<Node> kept;
    for (Node& node : result_.graph.nodes) {
      replace_operands(node);
      if (is_check(node) || make_empty(node)) {
        forget_operands(node);
      } else if (!compute(node) && !replace(node)) {
        kept.push_back(std::move(node));
      }
    }
    result_.graph.nodes = std::move(kept);
    for (GraphOutput& output : result_.graph.outputs) output.tensor = replaced(output.tensor);
    drop_unused();
    return std::move(result_);
  }

 private:
  // Takes the values of buffers and constants that no step changes.
  void load_constants() {
    std::set<std::string_view> changed;
    for (const GraphOutput& output : result_.graph.outputs)
      if (output.kind == OutputKind::buffer) changed.insert(output.name);
    for (const GraphInput& input : result_.graph.inputs) {
      if (uses_[index_of(input.tensor)] == 0) continue;
      if (const auto known = options_.inputs.find(input.name);
          input.kind == InputKind::user && known != options_.inputs.end())
        load(input, known->second);
      const bool fixed = input.kind == InputKind::constant ||
                         (input.kind == InputKind::buffer && !changed.contains(input.name) &&
                          (!input.persistent || options_.persistent_buffers));
      const StoredTensor* stored = fixed ? model_.find(input.name) : nullptr;
      if (!stored) continue;
      if (!stored->is_absent)
        load(input, *stored);
      else if (!input.persistent)
        result_.left.push_back({input.name,
                                "the archive has no values of it: the model was exported on the "
                                "meta device, and this is no weight; make it on the CPU"});
    }
  }

  void load(const GraphInput& input, const std::vector<int64_t>& elements) {
    const TensorInfo& info = result_.graph.tensor(input.tensor);
    Sizes sizes;
    for (const Size& size : info.sizes) sizes.push_back(size.value());
    try {
      HostTensor value = make_tensor(budget_, info.type, sizes);
      check(value.elements() == std::ssize(elements), "input {} has {} elements, and {} are known",
            input.name, value.elements(), elements.size());
      const auto store = storer_of<int64_t>(info.type);
      char* at = value.data.get();
      for (const int64_t element : elements)
        store(std::exchange(at, at + size_of(info.type)), element);
      result_.constants.emplace(input.tensor.id, std::move(value));
    } catch (const LeftError& e) {
      fail_user("{}: input {}: {}", model_.archive.path(), input.name, e.what());
    }
  }

  void load(const GraphInput& input, const StoredTensor& stored) {
    try {
      HostTensor value = make_tensor(budget_, stored.type, stored.sizes);
      const std::string elements = read_elements(model_.archive, stored);
      std::ranges::copy(elements, value.data.get());
      result_.constants.emplace(input.tensor.id, std::move(value));
    } catch (const LeftError& e) {
      result_.left.push_back({input.name, e.what()});
    }
  }

  void count_uses() {
    uses_.assign(result_.graph.tensors.size(), 0);
    for (const Node& node : result_.graph.nodes)
      for_each_operand(node, [&](TensorRef ref) { uses_[index_of(ref)] += ref ? 1 : 0; });
    for (const GraphOutput& output : result_.graph.outputs) ++uses_[index_of(output.tensor)];
  }

  static size_t index_of(TensorRef ref) { return static_cast<size_t>(std::max(ref.id, 0)); }

  // Whether all values that a node takes are known.
  bool is_known(const Node& node, const EvaluatedOp& op) const {
    bool known = true;
    for (const auto& [name, argument] : node.arguments) {
      if (name == op.shape_of) continue;
      if (const auto* tensor = std::get_if<TensorRef>(&argument))
        known = known && (!*tensor || result_.constants.contains(tensor->id));
      if (const auto* tensors = std::get_if<std::vector<TensorRef>>(&argument))
        for (const TensorRef& ref : *tensors)
          known = known && (!ref || result_.constants.contains(ref.id));
    }
    return known;
  }

  // Takes outputs without elements as constants, whatever they are computed from. Returns whether all outputs are such.
  bool make_empty(const Node& node) {
    bool all = !node.outputs.empty();
    for (const TensorRef output : node.outputs) {
      if (!output) continue;
      const TensorInfo& info = result_.graph.tensor(output);
      all = all && is_empty(info);
      if (!is_empty(info) || uses_[index_of(output)] == 0) continue;
      Sizes sizes;
      for (const Size& size : info.sizes) sizes.push_back(size.value());
      result_.constants.emplace(output.id, make_tensor(budget_, info.type, sizes));
    }
    return all;
  }

  // Computes a node's outputs, unless they depend on more than constants. Returns whether it did.
  bool compute(const Node& node) {
    const EvaluatedOp* op = node.schema ? find_evaluated(node.target) : nullptr;
    if (!op || !is_known(node, *op)) return false;
    try {
      std::vector<HostTensor> values =
          evaluate(*op, Operands(result_.graph, node, result_.constants, budget_));
      for (size_t i = 0; i < values.size(); ++i)
        if (node.outputs[i] && uses_[index_of(node.outputs[i])] > 0)
          result_.constants.emplace(node.outputs[i].id, std::move(values[i]));
    } catch (const LeftError& e) {
      result_.left.push_back({node.name, e.what()});
      return false;
    } catch (const UserError& e) {
      fail_user("{}: {}", model_.archive.path(), e.what());
    }
    forget_operands(node);
    return true;
  }

  // Lets what takes the output of a node take the tensor that it gives back. Returns whether it is such a node.
  bool replace(Node& node) {
    for (const TensorRef dropped : drop_empty_parts(result_.graph, node)) forget(dropped);
    const TensorRef same = identity_of(result_.graph, node);
    if (!same) return false;
    replacements_[node.outputs[0].id] = same;
    uses_[index_of(same)] += uses_[index_of(node.outputs[0])];
    forget_operands(node);
    return true;
  }

  TensorRef replaced(TensorRef ref) const {
    const auto it = replacements_.find(ref.id);
    return it == replacements_.end() ? ref : it->second;
  }

  void replace_operands(Node& node) const {
    for_each_operand(node, [&](TensorRef& ref) { ref = replaced(ref); });
  }

  // Frees the values that nothing else takes.
  void forget_operands(const Node& node) {
    for_each_operand(node, [&](TensorRef ref) { forget(ref); });
  }

  void forget(TensorRef ref) {
    if (ref && --uses_[index_of(ref)] == 0) result_.constants.erase(ref.id);
  }

  // Leaves out nodes whose outputs nothing takes, from the last to the first, and values that only they took.
  void drop_unused() {
    std::vector<Node>& nodes = result_.graph.nodes;
    std::vector<bool> kept(nodes.size());
    for (size_t i = nodes.size(); i-- > 0;) {
      kept[i] = nodes[i].outputs.empty();
      for (const TensorRef output : nodes[i].outputs)
        kept[i] = kept[i] || (output && uses_[index_of(output)] > 0);
      if (!kept[i]) forget_operands(nodes[i]);
    }
    size_t at = 0;
    std::erase_if(nodes, [&](const Node&) { return !kept[at++]; });
    std::erase_if(result_.constants,
                  [&](const auto& c) { return uses_[static_cast<size_t>(c.first)] == 0; });
  }

  const ExportedModel& model_;
  const FoldOptions& options_;
  FoldBudget budget_;
  FoldedGraph result_;
  std::vector<int64_t> uses_;                  // by tensor
  std::map<int32_t, TensorRef> replacements_;  // by the id of the tensor that is replaced
};

}  // namespace

FoldedGraph fold(const ExportedModel& model, Graph graph, const FoldOptions& options) {
  return Folder(model, std::move(graph), options).run();
}

}  // namespace dstrain::exported
