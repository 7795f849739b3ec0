// Operands: what an operator is given where its value is computed.
#pragma once

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "models/exported/fold/host_tensor.h"
#include "models/exported/fold/promote.h"
#include "models/exported/graph/graph.h"
#include "runtime/core/error.h"

namespace dstrain::exported {

// Values by the ids of their tensors.
using Constants = std::map<int32_t, HostTensor>;

class Operands {
 public:
  Operands(const Graph& graph, const Node& node, const Constants& values, FoldBudget& budget)
      : graph_(graph), node_(node), values_(values), budget_(budget) {}

  const Node& node() const { return node_; }
  FoldBudget& budget() const { return budget_; }
  // What the graph says of the node's result.
  const TensorInfo& result(size_t output = 0) const {
    return graph_.tensor(node_.outputs.at(output));
  }

  // Returns the value of a tensor argument, also one that is a number.
  Operand operand(std::string_view argument) const;
  HostTensor tensor(std::string_view argument) const { return operand(argument).tensor; }
  std::vector<HostTensor> tensors(std::string_view argument) const;
  HostTensor value(TensorRef ref) const;
  // Returns type and sizes of a tensor argument whose value may be unknown.
  const TensorInfo& info(std::string_view argument) const;

  // Returns the type that an argument asks for, or `otherwise` where it is None.
  ScalarType type_or(std::string_view argument, ScalarType otherwise) const;
  // Returns a dimension from 0 for one that may count from the end. Throws UserError if there is none such.
  size_t dimension(int64_t stated, size_t rank) const;
  size_t dimension(std::string_view argument, size_t rank) const;

  // Throws UserError about this node: a graph that PyTorch has made does not contradict itself.
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw UserError(
        fmt::format("{} {}", describe(node_), fmt::format(format, std::forward<Args>(args)...)));
  }

 private:
  const Graph& graph_;
  const Node& node_;
  const Constants& values_;
  FoldBudget& budget_;
};

// Computes an operator's results.
using Evaluator = std::vector<HostTensor> (*)(const Operands&);

// An operator that can be computed. Of the tensor argument `shape_of` only type and sizes are used.
struct EvaluatedOp {
  std::string_view target;
  Evaluator evaluate;
  std::string_view shape_of = {};
};

// The operators that can be computed, by kind.
std::span<const EvaluatedOp> unary_ops();
std::span<const EvaluatedOp> binary_ops();
std::span<const EvaluatedOp> cast_ops();
std::span<const EvaluatedOp> creation_ops();
std::span<const EvaluatedOp> view_ops();
std::span<const EvaluatedOp> join_ops();
std::span<const EvaluatedOp> gather_ops();
std::span<const EvaluatedOp> reduction_ops();
std::span<const EvaluatedOp> product_ops();
std::span<const EvaluatedOp> sort_ops();

}  // namespace dstrain::exported
