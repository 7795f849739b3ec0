// Recurrent networks, cell by cell.
#include <span>
#include <utility>

#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

// The weights of one direction of a layer: of the input and of the hidden state, with their biases.
struct CellWeights {
  Value input, hidden;
  std::optional<Value> input_bias, hidden_bias;
};

// Returns x (rows, inputs) times the transpose of weights (n, inputs), plus biases.
Value product(Lowering& l, const Node& node, const Value& x, const Value& weight,
              const std::optional<Value>& bias) {
  const std::optional<BufferId> w = l.parameter(weight);
  const std::optional<BufferId> b = bias ? l.parameter(*bias) : std::nullopt;
  if (!w || (bias && !b)) Lowering::fail(node, "has weights that are no parameters");
  const BufferId id = l.builder().linear(l.rows(x), *w, b.value_or(kNone), Activation::none);
  return whole(id, {x.shape[0], weight.shape[0]}, x.type);
}

// Returns gate `number` of so many columns.
Value gate(const Value& gates, int64_t number, int64_t columns) {
  return slice(gates, 1, number * columns, columns);
}

struct State {
  Value hidden, cell;
};

// Returns the state behind a token: `of_input` is the token's part of the gates (rows, 4 hidden), in the order input, forget,
// cell, output.
State lstm_cell(Lowering& l, const Node& node, const Value& of_input, const State& before,
                const CellWeights& w) {
  const int64_t n = before.hidden.shape[1];
  const Value gates = l.computed(l.pointwise(
      node, [](Formulas f) { return f[0] + f[1]; },
      {of_input, product(l, node, before.hidden, w.hidden, w.hidden_bias)}, of_input.type));
  const Value cell = l.computed(l.pointwise(
      node, [](Formulas f) { return sigmoid(f[0]) * f[1] + sigmoid(f[2]) * tangent(f[3]); },
      {gate(gates, 1, n), before.cell, gate(gates, 0, n), gate(gates, 2, n)}, of_input.type));
  const Value hidden = l.computed(l.pointwise(
      node, [](Formulas f) { return sigmoid(f[0]) * tangent(f[1]); }, {gate(gates, 3, n), cell},
      of_input.type));
  return {hidden, cell};
}

// The same of a GRU, whose gates are reset, update and new.
State gru_cell(Lowering& l, const Node& node, const Value& of_input, const State& before,
               const CellWeights& w) {
  const int64_t n = before.hidden.shape[1];
  const Value of_hidden = product(l, node, before.hidden, w.hidden, w.hidden_bias);
  const Value fresh = l.computed(l.pointwise(
      node, [](Formulas f) { return tangent(f[0] + sigmoid(f[1] + f[2]) * f[3]); },
      {gate(of_input, 2, n), gate(of_input, 0, n), gate(of_hidden, 0, n), gate(of_hidden, 2, n)},
      of_input.type));
  const Value hidden = l.computed(l.pointwise(
      node,
      [](Formulas f) {
        const Formula keep = sigmoid(f[0] + f[1]);
        return keep * f[2] + (1 - keep) * f[3];
      },
      {gate(of_input, 1, n), gate(of_hidden, 1, n), before.hidden, fresh}, of_input.type));
  return {hidden, {}};
}

// Returns tensors side by side along a new dimension.
Value stacked(Lowering& l, const std::vector<Value>& parts, int dimension) {
  std::vector<Value> with_dimension;
  for (const Value& part : parts) with_dimension.push_back(unsqueeze(part, dimension));
  return joined(l, std::move(with_dimension), dimension);
}

using Cell = State (*)(Lowering&, const Node&, const Value&, const State&, const CellWeights&);

// x (samples, tokens, inputs), or tokens first; states (layers, samples, hidden).
void lower_recurrent(Lowering& l, const Node& node, Cell cell, int64_t gates, bool has_cell) {
  if (node.flag("bidirectional"))
    Lowering::fail(node, "runs in two directions, which is not supported");
  if (node.real("dropout") > 0 && node.flag("train") && l.builder().options().training)
    Lowering::fail(node, "drops elements between layers, which is not supported: expected 0");
  Value x = l.operand(node, "input");
  if (x.shape.rank != 3)
    Lowering::fail(node, "has an input of {}: expected samples", to_string(x.shape));
  const bool batch_first = node.flag("batch_first");
  if (!batch_first) x = transpose(std::move(x), 0, 1);
  const int64_t samples = x.shape[0], tokens = x.shape[1];
  const std::vector<Value> params = l.operands(node, "params");
  const bool biases = node.flag("has_biases");
  const size_t each = biases ? 4 : 2;
  const auto layers = static_cast<size_t>(node.whole("num_layers"));
  if (params.size() != layers * each)
    Lowering::fail(node, "has {} weights of {} layers: expected {} of each", params.size(), layers,
                   each);
  std::vector<Value> hidden, cells;
  if (has_cell) {
    const std::vector<Value> states = l.operands(node, "hx");
    hidden.push_back(states.at(0));
    cells.push_back(states.at(1));
  } else {
    hidden.push_back(l.operand(node, "hx"));
  }
  std::vector<Value> last_hidden, last_cells;
  for (size_t layer = 0; layer < layers; ++layer) {
    CellWeights w{params[layer * each], params[layer * each + 1], {}, {}};
    if (biases) {
      w.input_bias = params[layer * each + 2];
      w.hidden_bias = params[layer * each + 3];
    }
    const auto number = static_cast<int64_t>(layer);
    State state{l.computed(select(hidden[0], 0, number)), {}};
    if (has_cell) state.cell = l.computed(select(cells[0], 0, number));
    const int64_t columns = gates * state.hidden.shape[1];
    const Value of_input = l.reshaped(
        product(l, node, l.reshaped(x, {samples * tokens, x.shape[2]}), w.input, w.input_bias),
        {samples, tokens, columns});
    std::vector<Value> outputs;
    for (int64_t t = 0; t < tokens; ++t) {
      state = cell(l, node, select(of_input, 1, t), state, w);
      outputs.push_back(state.hidden);
    }
    x = stacked(l, outputs, 1);
    last_hidden.push_back(state.hidden);
    last_cells.push_back(state.cell);
  }
  l.set(node, batch_first ? x : transpose(x, 0, 1));
  if (node.outputs.at(1) && l.is_used(node.outputs[1])) l.set(node, stacked(l, last_hidden, 0), 1);
  if (has_cell && node.outputs.at(2) && l.is_used(node.outputs[2]))
    l.set(node, stacked(l, last_cells, 0), 2);
}

constexpr LoweredOp kRecurrent[] = {
    {"aten.gru.input",
     [](Lowering& l, const Node& node) { lower_recurrent(l, node, gru_cell, 3, false); }},
    {"aten.lstm.input",
     [](Lowering& l, const Node& node) { lower_recurrent(l, node, lstm_cell, 4, true); }},
};

}  // namespace

std::span<const LoweredOp> recurrent_operators() {
  return kRecurrent;
}

}  // namespace dstrain::exported
