#include "models/exported/lower/lowering.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace dstrain::exported {
namespace {

// What a map may read and do, so that the one that computes its gradient has enough room.
constexpr size_t kMostOperands = 5, kMostSteps = 24;

constexpr float kIgnoredLabel = -100;  // PyTorch's

}  // namespace

Lowering::Lowering(Builder& builder, const FoldedGraph& folded, const GraphFacts& facts,
                   const std::vector<TensorRef>& at_end)
    : builder_(builder), folded_(folded), facts_(facts) {
  for (const GraphInput& input : graph().inputs) inputs_[input.tensor.id] = &input;
  for (size_t n = 0; n < graph().nodes.size(); ++n)
    for_each_operand(graph().nodes[n], [&](TensorRef ref) {
      ++uses_[ref.id];
      last_use_[ref.id] = n;
    });
  for (const TensorRef ref : at_end) {
    ++uses_[ref.id];
    last_use_[ref.id] = graph().nodes.size();
  }
}

void Lowering::declare_inputs() {
  for (const GraphInput& of_graph : graph().inputs)
    if (of_graph.kind == InputKind::user && builder_.options().has(facts_.role_of(of_graph.name)))
      declare(of_graph, shape_of(of_graph.tensor));
}

void Lowering::begin_layer(const GraphLayer& layer, size_t node) {
  for (auto& [id, value] : values_)
    if (!value.is_plain() && last_use_[id] >= node) value = computed(value);
  if (layer.number < 0)
    builder_.unit(layer.stack);
  else
    builder_.layer(layer.stack, layer.number);
}

Shape Lowering::shape_of(TensorRef ref) const {
  Shape shape;
  for (const Size& size : graph().tensor(ref).sizes) shape.append(size.value());
  if (shape.elements() == 0)
    fail_user("tensor {} has the shape {}, without elements, which is not supported",
              graph().tensor(ref).name, to_string(shape));
  return shape;
}

Value Lowering::value(TensorRef ref) {
  const Value value = held(ref);
  return value.is_bounded() ? computed(value) : value;
}

Value Lowering::held(TensorRef ref) {
  if (const auto known = values_.find(ref.id); known != values_.end()) return known->second;
  if (const auto held = folded_.constants.find(ref.id); held != folded_.constants.end())
    return constant_value(ref, held->second);
  const auto given = inputs_.find(ref.id);
  check(given != inputs_.end(), "tensor {} has no value", graph().tensor(ref).name);
  return input(*given->second);
}

Value Lowering::input(const GraphInput& input) {
  const TensorInfo& info = graph().tensor(input.tensor);
  const Shape shape = shape_of(input.tensor);
  switch (input.kind) {
    case InputKind::parameter:
      return parameter(input, shape);
    case InputKind::user:
      return user_input(input, shape);
    case InputKind::buffer:
      if (facts_.running.contains(input.name))
        return whole(running(input.name, shape), shape, info.type);
      break;
    case InputKind::constant:
      break;
  }
  fail_user(
      "buffer {} changes while the model trains, or has no values in the archive: expected a "
      "constant",
      input.name);
}

BufferId Lowering::declare(const GraphInput& input, const Shape& shape) {
  const InputRole role = facts_.role_of(input.name);
  Shape sample;
  for (int d = facts_.is_one_sample ? 0 : 1; d < shape.rank; ++d) sample.append(shape[d]);
  const bool floating = role == InputRole::array && is_floating(graph().tensor(input.tensor).type);
  return builder_.input(input.name, role, floating ? DType::f32 : DType::i32, sample);
}

Value Lowering::user_input(const GraphInput& input, const Shape& shape) {
  const ScalarType type = graph().tensor(input.tensor).type;
  const BufferId id = declare(input, shape);
  if (is_floating(type) && builder_.program().at(id).dtype == DType::i32)
    return whole(builder_.map(Formula::input(0), shape, {{id, dense_view(shape)}}, DType::f32),
                 shape, type);
  if (input.name != facts_.unshifted) return whole(id, shape, type);
  // Data give each token's successor. The first token has no place among these: nothing predicts it.
  Builder::Seen before{id, dense_view(shape)};
  before.view.offset -= 1;
  before.view.begin[1] = 1;
  const Formula label = select(Formula::inside(0), Formula::input(0), kIgnoredLabel);
  return whole(builder_.map(label, shape, {before}, DType::i32), shape, type);
}

BufferId Lowering::running(const std::string& name, const Shape& shape) {
  const auto known = running_.find(name);
  if (known != running_.end()) return known->second;
  const RunningFacts& facts = facts_.running.find(name)->second;
  return running_[name] = builder_.registered_buffer(facts.name, shape, facts.init);
}

std::optional<BufferId> Lowering::registered(const Node& node, std::string_view argument) {
  const auto given = inputs_.find(node.tensor(argument).id);
  if (given == inputs_.end() || !facts_.running.contains(given->second->name)) return std::nullopt;
  return running(given->second->name, shape_of(node.tensor(argument)));
}

Value Lowering::parameter(const GraphInput& input, const Shape& shape) {
  const auto facts = facts_.parameters.find(input.name);
  check(facts != facts_.parameters.end(), "parameter {} is not known", input.name);
  const TensorInfo& info = graph().tensor(input.tensor);
  const auto& [name, init, scale] = facts->second;
  return whole(builder_.parameter(name, shape, init, scale,
                                  info.requires_grad ? Trainable::yes : Trainable::no),
               shape, info.type);
}

Value Lowering::bounded_operand(const Node& node, std::string_view argument) {
  if (const std::optional<Scalar> scalar = node.scalar(argument)) {
    const ScalarType type = std::holds_alternative<double>(*scalar)    ? ScalarType::f32
                            : std::holds_alternative<int64_t>(*scalar) ? ScalarType::i64
                                                                       : ScalarType::boolean;
    return number(std::visit([](auto x) { return static_cast<double>(x); }, *scalar), type);
  }
  return held(node.tensor(argument));
}

Value Lowering::operand(const Node& node, std::string_view argument) {
  const Value value = bounded_operand(node, argument);
  return value.is_bounded() ? computed(value) : value;
}

std::vector<Value> Lowering::operands(const Node& node, std::string_view argument) {
  std::vector<Value> values;
  for (const TensorRef ref : node.tensors(argument)) values.push_back(value(ref));
  return values;
}

std::optional<BufferId> Lowering::parameter(const Value& value) const {
  if (!value.is_dense()) return std::nullopt;
  const BufferId id = value.operands[0].buffer;
  const Buffer& buffer = builder_.program().at(id);
  if (buffer.parameter < 0 || buffer.shape != value.shape) return std::nullopt;
  return id;
}

int Lowering::dimension(const Node& node, int64_t stated, int rank) const {
  const int64_t most = std::max(rank, 1);
  if (stated < -most || stated >= most)
    fail(node, "dimension {} of a tensor with {} dimensions", stated, rank);
  return static_cast<int>(stated < 0 ? stated + most : stated);
}

std::vector<int> Lowering::dimensions(const Node& node, std::string_view argument, int rank) const {
  std::vector<int> all;
  if (node.has(argument))
    for (const int64_t d : node.wholes(argument)) all.push_back(dimension(node, d, rank));
  if (all.empty())
    for (int d = 0; d < rank; ++d) all.push_back(d);
  std::ranges::sort(all);
  return all;
}

bool Lowering::is_misstated(const Node& node) const {
  bool is = node.target == "aten.cross_entropy_loss.default" && node.whole("reduction") == 0;
  for_each_operand(node, [&](TensorRef ref) { is = is || misstated_.contains(ref.id); });
  return is;
}

void Lowering::set(const Node& node, Value value, size_t output) {
  const TensorRef ref = node.outputs.at(output);
  if (!ref || is_empty(graph().tensor(ref))) return;  // without elements it is a constant
  if (value.shape != shape_of(ref)) {
    check(is_misstated(node), "{} gives {}, and the graph says {}", describe(node),
          to_string(value.shape), to_string(shape_of(ref)));
    misstated_.insert(ref.id);
  }
  value.type = graph().tensor(ref).type;
  if (uses_[ref.id] > 1 && !value.is_plain() && !value.operands.empty()) value = computed(value);
  values_[ref.id] = std::move(value);
}

BufferId Lowering::emit(const Value& value) {
  if (value.operands.empty()) {
    const auto n = static_cast<size_t>(value.shape.elements());
    const float x = value.formula.constant().value();
    const bool integers = is_integer(value.type);
    const std::vector<int32_t> numbers(integers ? n : 0, static_cast<int32_t>(x));
    const std::vector<float> values(integers ? 0 : n, x);
    const void* data = integers ? static_cast<const void*>(numbers.data()) : values.data();
    return builder_.constant(fmt::format("constant_{}_{}", x, to_string(value.shape)),
                             space_of(value.shape), integers ? DType::i32 : DType::f32, data);
  }
  std::vector<Builder::Seen> operands = value.operands;
  const bool exact = std::ranges::all_of(operands, [this](const Builder::Seen& seen) {
    return builder_.program().at(seen.buffer).dtype == DType::f32;
  });
  std::optional<DType> dtype;
  if (exact) dtype = DType::f32;
  if (is_integer(value.type)) dtype = DType::i32;
  return builder_.map(value.formula, space_of(value.shape), operands, dtype);
}

Builder::Seen Lowering::seen(const Value& value) {
  return value.is_plain() ? value.operands[0] : computed(value).operands[0];
}

BufferId Lowering::dense(const Value& value) {
  return value.is_dense() && builder_.program().at(value.operands[0].buffer).shape.elements() ==
                                 value.shape.elements()
             ? value.operands[0].buffer
             : emit(value);
}

BufferId Lowering::exact(const Value& value) {
  if (value.operands.empty()) return dense(value);
  return builder_.map(value.formula, space_of(value.shape), value.operands, DType::f32);
}

BufferId Lowering::rows(const Value& value) {
  const BufferId elements = dense(value);
  const int64_t columns = value.shape.rank == 0 ? 1 : value.shape[-1];
  if (builder_.program().at(elements).dtype == builder_.options().dtype)
    return builder_.matrix(elements, columns);
  // Sums are f32, and operations of rows take the run's dtype.
  const Shape matrix{value.shape.elements() / columns, columns};
  return builder_.map(Formula::input(0), matrix, {{elements, dense_view(matrix)}});
}

Value Lowering::computed(const Value& value) {
  if (value.is_plain()) return value;
  const std::vector<int> order = order_in_memory(value);
  const Value ordered = permute(value, order);
  return permute(whole(emit(ordered), ordered.shape, value.type), inverse_of(order));
}

Value Lowering::integers(const Value& value) {
  Value whole_numbers = value;
  whole_numbers.type = ScalarType::i64;
  if (value.is_plain() && builder_.program().at(value.operands[0].buffer).dtype == DType::i32)
    return whole_numbers;
  return whole(emit(whole_numbers), value.shape, ScalarType::i64);
}

Value Lowering::pointwise(const Node& node,
                          const std::function<Formula(std::span<const Formula>)>& function,
                          std::vector<Value> values, ScalarType type) {
  Shape shape;
  for (const Value& value : values) {
    const std::optional<Shape> together = broadcast(shape, value.shape);
    if (!together)
      fail(node, "shapes {} and {} have no common one", to_string(shape), to_string(value.shape));
    shape = *together;
  }
  Value result{.operands = {}, .shape = shape, .type = type};
  std::vector<Formula> formulas;
  const auto join = [&] {
    result.operands.clear();
    formulas.clear();
    size_t steps = 0;
    for (Value& value : values) {
      value = expand(std::move(value), shape);
      std::vector<int> numbers;
      for (const Builder::Seen& seen : value.operands) {
        auto known = std::ranges::find_if(result.operands, [&seen](const Builder::Seen& other) {
          return other.buffer == seen.buffer && other.view == seen.view;
        });
        numbers.push_back(static_cast<int>(known - result.operands.begin()));
        if (known == result.operands.end()) result.operands.push_back(seen);
      }
      steps += value.formula.steps().size();
      // A formula has a limit of its own, to which these limits are not near.
      if (result.operands.size() > kMostOperands || steps > kMostSteps) return false;
      formulas.push_back(value.formula.renumbered(numbers));
    }
    return true;
  };
  while (!join()) {
    const auto longest = std::ranges::max_element(values, {}, [](const Value& value) {
      return value.is_plain() ? 0
                              : value.operands.size() * kMostSteps + value.formula.steps().size();
    });
    if (longest->is_plain() || longest->operands.empty())
      fail(node, "takes more than {} tensors", kMostOperands);
    *longest = computed(*longest);
  }
  result.formula = function(formulas);
  if (result.operands.empty()) return result;
  // What does not depend on an operand any more: x * 0.
  if (result.formula.constant()) result.operands.clear();
  return result;
}

Value Lowering::reshaped(const Value& value, const Shape& shape) {
  if (std::optional<Value> seen = reshape(value, shape)) return *std::move(seen);
  return whole(dense(value), shape, value.type);
}

Value Lowering::reduced(Reduction kind, const Value& value, const std::vector<int>& dimensions,
                        bool keep, Gradient gradient) {
  std::vector<int> order;
  const auto goes = [&](int d) { return std::ranges::find(dimensions, d) != dimensions.end(); };
  const std::vector<int> in_memory = order_in_memory(value);
  std::ranges::copy_if(in_memory, std::back_inserter(order), [&](int d) { return !goes(d); });
  const auto kept = static_cast<int>(order.size());
  std::ranges::copy_if(in_memory, std::back_inserter(order), goes);
  const Value ordered = permute(value, order);
  Shape result;
  for (int d = 0; d < kept; ++d) result.append(ordered.shape[d]);
  Value reduced{.formula = value.formula, .operands = {}, .shape = result, .type = value.type};
  if (value.operands.empty()) {
    const int64_t n = value.shape.elements() / result.elements();
    if (kind == Reduction::sum) reduced.formula = value.formula * static_cast<float>(n);
  } else {
    const Shape space = space_of(ordered.shape);
    const BufferId id =
        gradient == Gradient::none
            ? builder_.detached_reduce(kind, ordered.formula, space, kept, ordered.operands,
                                       DType::f32)
            : builder_.reduce(kind, ordered.formula, space, kept, ordered.operands, DType::f32);
    reduced = whole(id, result, value.type);
  }
  std::vector<int> back(static_cast<size_t>(kept));
  std::iota(back.begin(), back.end(), 0);
  std::ranges::sort(back, {}, [&order](int d) { return order[static_cast<size_t>(d)]; });
  reduced = permute(std::move(reduced), back);
  if (keep)
    for (const int d : dimensions) reduced = unsqueeze(std::move(reduced), d);
  return reduced;
}

Value Lowering::contracted(const Value& a, const Value& b) {
  if (a.shape[-1] == 0) {  // sums of nothing
    Shape shape = a.shape;
    shape.dims[static_cast<size_t>(shape.rank - 1)] = b.shape[-2];
    return expand(number(0, a.type), shape);
  }
  const auto operand = [this](const Value& value) {
    const Value plain = computed(value);
    const DType dtype = builder_.program().at(plain.operands[0].buffer).dtype;
    if (dtype == builder_.options().dtype) return plain;
    return whole(builder_.map(Formula::input(0), plain.shape, plain.operands), plain.shape,
                 plain.type);
  };
  const Value left = operand(a), right = operand(b);
  const int rank = left.shape.rank;
  Shape batch;
  for (int d = 0; d + 2 < rank; ++d) batch.append(left.shape[d]);
  const int64_t m = left.shape[-2], n = right.shape[-2], k = left.shape[-1];
  const BufferId id = builder_.contract(left.operands[0], right.operands[0], batch, m, n, k);
  Shape shape = batch;
  shape.append(m);
  shape.append(n);
  return whole(id, shape, a.type);
}

}  // namespace dstrain::exported
