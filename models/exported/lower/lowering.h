// Lowering: the values of a graph's tensors while it becomes a program (lower_graph.h). Each operator says what its results are
// as values of its operands (value.h), which become operations of the builder where their elements are needed.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/exported/fold/fold.h"
#include "models/exported/lower/blocks.h"
#include "models/exported/lower/graph_facts.h"
#include "models/exported/lower/value.h"
#include "runtime/core/error.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain::exported {

class Lowering {
 public:
  // All must live as long as the object. All sizes of the graph are known, for a batch of the builder's samples. `at_end`:
  // tensors that are read behind all nodes.
  Lowering(Builder& builder, const FoldedGraph& folded, const GraphFacts& facts,
           const std::vector<TensorRef>& at_end);

  // Computes what nodes from `node` on need of layers before, and begins the next layer.
  void begin_layer(const GraphLayer& layer, size_t node);
  // Declares all inputs of the user in the order of the graph, also those that nothing reads.
  void declare_inputs();

  Builder& builder() { return builder_; }
  const Graph& graph() const { return folded_.graph; }
  int64_t batch() const { return builder_.options().batch; }
  const TensorInfo& result(const Node& node, size_t output = 0) const {
    return graph().tensor(node.outputs.at(output));
  }
  Shape shape_of(TensorRef ref) const;

  // Return the value of a tensor, and of an argument, which may be a number instead. The argument must not be None.
  Value value(TensorRef ref);
  Value operand(const Node& node, std::string_view argument);
  // The same, which may be bounded: for what computes each element by itself, and for views that cut no dimension.
  Value bounded_operand(const Node& node, std::string_view argument);
  std::vector<Value> operands(const Node& node, std::string_view argument);
  // Returns the values of a constant, if the argument is one.
  const HostTensor* constant(const Node& node, std::string_view argument) const;
  // Returns the parameter whose elements the value is, in order; nothing if it is none.
  std::optional<BufferId> parameter(const Value& value) const;
  // Returns the buffer of the module that an argument is and that steps change, f32; nothing if it is none.
  std::optional<BufferId> registered(const Node& node, std::string_view argument);
  // Returns a dimension from 0 for one that may count from the end.
  int dimension(const Node& node, int64_t stated, int rank) const;
  int dimension(const Node& node, std::string_view argument, int rank) const {
    return dimension(node, node.whole(argument), rank);
  }
  // Returns the dimensions that an argument lists, in ascending order; all if it lists none.
  std::vector<int> dimensions(const Node& node, std::string_view argument, int rank) const;

  // Returns the number that an argument is. Throws UserError where it is a tensor.
  static float real(const Node& node, std::string_view argument) {
    const std::optional<Scalar> scalar = node.scalar(argument);
    if (!scalar) fail(node, "has a tensor as {}: expected a number", argument);
    return std::visit([](auto x) { return static_cast<float>(x); }, *scalar);
  }
  // Returns whether an operator takes a tensor.
  bool is_used(TensorRef ref) const { return uses_.contains(ref.id); }

  // Says what a node's result is.
  void set(const Node& node, Value value, size_t output = 0);

  // Returns the value as a buffer and a view of it, computed if it is no more than that.
  Builder::Seen seen(const Value& value);
  // Returns a buffer that has the value's elements in order, computed or copied if there is none.
  BufferId dense(const Value& value);
  // The same in f32, whatever the run's dtype. The value depends on operands, or is a number.
  BufferId exact(const Value& value);
  // As dense(), in rows of the last dimension and in the run's dtype.
  BufferId rows(const Value& value);
  // Returns the value, plain: in memory as its first operand that has all elements.
  Value computed(const Value& value);
  // Returns the value in 32-bit integers, which lose what is behind the point.
  Value integers(const Value& value);
  // Returns a constant of these elements. `name`: what it is for a node.
  Value list(const Node& node, std::string_view name, const Shape& shape,
             const std::vector<int32_t>& elements);
  Value list(const Node& node, std::string_view name, const Shape& shape,
             const std::vector<float>& elements);
  // Returns a function of values, which have one shape together.
  Value pointwise(const Node& node,
                  const std::function<Formula(std::span<const Formula>)>& function,
                  std::vector<Value> values, ScalarType type);
  // Returns the value in other dimensions.
  Value reshaped(const Value& value, const Shape& shape);
  // Returns the sum, the largest or the smallest over dimensions, f32. `gradient`: whether one goes back through it.
  enum class Gradient : uint8_t { through, none };
  Value reduced(Reduction kind, const Value& value, const std::vector<int>& dimensions, bool keep,
                Gradient gradient = Gradient::through);
  // Returns the products over k of a (batch, m, k) and b (batch, n, k): (batch, m, n).
  Value contracted(const Value& a, const Value& b);

  // Throws UserError about a node.
  template <class... Args>
  [[noreturn]] static void fail(const Node& node, fmt::format_string<Args...> format,
                                Args&&... args) {
    throw UserError(
        fmt::format("{}: {}", describe(node), fmt::format(format, std::forward<Args>(args)...)));
  }

 private:
  Value held(TensorRef ref);
  // Returns whether archives of PyTorch 2.15 may have another shape for a node's result than it has: where the batch is free,
  // they say that a cross-entropy without reduction has no dimension, and so of what is computed from it.
  bool is_misstated(const Node& node) const;
  Value input(const GraphInput& input);
  BufferId declare(const GraphInput& input, const Shape& shape);
  Value user_input(const GraphInput& input, const Shape& shape);
  Value parameter(const GraphInput& input, const Shape& shape);
  BufferId running(const std::string& name, const Shape& shape);
  Value constant_value(TensorRef ref, const HostTensor& tensor);
  BufferId emit(const Value& value);

  Builder& builder_;
  const FoldedGraph& folded_;
  const GraphFacts& facts_;
  std::map<int32_t, Value> values_;  // of nodes
  std::map<int32_t, size_t> uses_,
      last_use_;  // by tensor: how many nodes take it, and the last one
  std::map<int32_t, const GraphInput*> inputs_;
  std::map<std::string, BufferId> running_;
  std::set<int32_t> misstated_;  // tensors
};

}  // namespace dstrain::exported
