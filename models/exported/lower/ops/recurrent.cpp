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

// The same of a network without gates.
template <Formula (*kFormula)(const Formula&)>
State plain_cell(Lowering& l, const Node& node, const Value& of_input, const State& before,
                 const CellWeights& w) {
  const Value hidden = l.computed(l.pointwise(
      node, [](Formulas f) { return kFormula(f[0] + f[1]); },
      {of_input, product(l, node, before.hidden, w.hidden, w.hidden_bias)}, of_input.type));
  return {hidden, {}};
}

// Returns tensors side by side along a new dimension.
Value stacked(Lowering& l, const std::vector<Value>& parts, int dimension) {
  std::vector<Value> with_dimension;
  for (const Value& part : parts) with_dimension.push_back(unsqueeze(part, dimension));
  return joined(l, std::move(with_dimension), dimension);
}

using Cell = State (*)(Lowering&, const Node&, const Value&, const State&, const CellWeights&);

// The networks that a node has: `directions` for each layer, the second one from the last token to the first.
struct Network {
  Cell cell = nullptr;
  int64_t gates = 0;
  bool has_cell = false;
  size_t layers = 0, directions = 1;
  bool biases = true;
  std::vector<Value> params;
  Value hidden, cells;  // before the first token: (layers * directions, samples, hidden)

  CellWeights weights(size_t number) const {
    const size_t each = biases ? 4 : 2;
    CellWeights w{params[number * each], params[number * each + 1], {}, {}};
    if (biases) {
      w.input_bias = params[number * each + 2];
      w.hidden_bias = params[number * each + 3];
    }
    return w;
  }
};

Network network_of(Lowering& l, const Node& node, Cell cell, int64_t gates, bool has_cell) {
  Network n;
  n.cell = cell;
  n.gates = gates;
  n.has_cell = has_cell;
  n.layers = static_cast<size_t>(node.whole("num_layers"));
  n.directions = node.flag("bidirectional") ? 2 : 1;
  n.biases = node.flag("has_biases");
  n.params = l.operands(node, "params");
  const size_t expected = n.layers * n.directions * (n.biases ? 4 : 2);
  if (n.params.size() != expected)
    Lowering::fail(node, "has {} weights: expected {}", n.params.size(), expected);
  if (has_cell) {
    const std::vector<Value> states = l.operands(node, "hx");
    n.hidden = states.at(0);
    n.cells = states.at(1);
  } else {
    n.hidden = l.operand(node, "hx");
  }
  return n;
}

// Runs direction `number` of a layer over x (samples, tokens, inputs). Returns the hidden states of all tokens, in their order;
// `state` becomes the last one.
Value run_direction(Lowering& l, const Node& node, const Network& n, size_t number, const Value& x,
                    State& state) {
  const CellWeights w = n.weights(number);
  const bool backward = n.directions == 2 && number % 2 == 1;
  const int64_t samples = x.shape[0], tokens = x.shape[1];
  const auto place = static_cast<int64_t>(number);
  state = {l.computed(select(n.hidden, 0, place)), {}};
  if (n.has_cell) state.cell = l.computed(select(n.cells, 0, place));
  const Value of_input = l.reshaped(
      product(l, node, l.reshaped(x, {samples * tokens, x.shape[2]}), w.input, w.input_bias),
      {samples, tokens, n.gates * state.hidden.shape[1]});
  std::vector<Value> outputs(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t t = backward ? tokens - 1 - i : i;
    state = n.cell(l, node, select(of_input, 1, t), state, w);
    outputs[static_cast<size_t>(t)] = state.hidden;
  }
  return stacked(l, outputs, 1);
}

// x (samples, tokens, inputs), or tokens first.
void lower_recurrent(Lowering& l, const Node& node, Cell cell, int64_t gates, bool has_cell) {
  Value x = l.operand(node, "input");
  if (x.shape.rank != 3)
    Lowering::fail(node, "has an input of {}: expected samples", to_string(x.shape));
  const bool batch_first = node.flag("batch_first");
  if (!batch_first) x = transpose(std::move(x), 0, 1);
  const Network n = network_of(l, node, cell, gates, has_cell);
  const double dropout = node.flag("train") ? node.real("dropout") : 0;
  std::vector<Value> last_hidden, last_cells;
  for (size_t layer = 0; layer < n.layers; ++layer) {
    if (layer > 0) x = dropped(l, node, x, dropout);
    std::vector<Value> outputs;
    for (size_t d = 0; d < n.directions; ++d) {
      State state;
      outputs.push_back(run_direction(l, node, n, layer * n.directions + d, x, state));
      last_hidden.push_back(state.hidden);
      last_cells.push_back(state.cell);
    }
    x = n.directions == 1 ? outputs[0] : joined(l, outputs, 2);
  }
  l.set(node, batch_first ? x : transpose(x, 0, 1));
  if (node.outputs.at(1) && l.is_used(node.outputs[1])) l.set(node, stacked(l, last_hidden, 0), 1);
  if (has_cell && node.outputs.at(2) && l.is_used(node.outputs[2]))
    l.set(node, stacked(l, last_cells, 0), 2);
}

// One step of a cell whose operands are those of a layer: x (samples, inputs).
void lower_cell(Lowering& l, const Node& node, Cell cell, bool has_cell) {
  const Value x = l.operand(node, "input");
  if (x.shape.rank != 2)
    Lowering::fail(node, "has an input of {}: expected samples", to_string(x.shape));
  CellWeights w{l.operand(node, "w_ih"), l.operand(node, "w_hh"), {}, {}};
  if (node.has("b_ih")) w.input_bias = l.operand(node, "b_ih");
  if (node.has("b_hh")) w.hidden_bias = l.operand(node, "b_hh");
  State state;
  if (has_cell) {
    const std::vector<Value> states = l.operands(node, "hx");
    state = {states.at(0), states.at(1)};
  } else {
    state.hidden = l.operand(node, "hx");
  }
  const Value of_input = product(l, node, x, w.input, w.input_bias);
  state = cell(l, node, of_input, state, w);
  l.set(node, state.hidden);
  if (has_cell) l.set(node, state.cell, 1);
}

constexpr LoweredOp kRecurrent[] = {
    {"aten.gru.input",
     [](Lowering& l, const Node& node) { lower_recurrent(l, node, gru_cell, 3, false); }},
    {"aten.gru_cell.default",
     [](Lowering& l, const Node& node) { lower_cell(l, node, gru_cell, false); }},
    {"aten.lstm.input",
     [](Lowering& l, const Node& node) { lower_recurrent(l, node, lstm_cell, 4, true); }},
    {"aten.lstm_cell.default",
     [](Lowering& l, const Node& node) { lower_cell(l, node, lstm_cell, true); }},
    {"aten.rnn_relu.input",
     [](Lowering& l, const Node& node) { lower_recurrent(l, node, plain_cell<relu>, 1, false); }},
    {"aten.rnn_tanh.input",
     [](Lowering& l, const Node& node) {
       lower_recurrent(l, node, plain_cell<tangent>, 1, false);
     }},
};

}  // namespace

std::span<const LoweredOp> recurrent_operators() {
  return kRecurrent;
}

}  // namespace dstrain::exported
