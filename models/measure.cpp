#include "models/measure.h"

#include <algorithm>

#include "runtime/ir/builder/builder.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

// Layers of which each is built where parameters are frozen by their names; of a deeper model the third stands for all
// behind it.
constexpr int64_t kMostNamedLayers = 1024;

// Returns the elements without an overflow.
double elements_of(const Shape& shape) {
  double elements = 1;
  for (int i = 0; i < shape.rank; ++i) elements *= static_cast<double>(shape[i]);
  return elements;
}

bool reads(const Instruction& op, BufferId id) {
  return std::ranges::find(op.reads, id) != op.reads.end();
}

// Returns the table of the embedding, if the program has one.
std::optional<TokenTable> token_table(const Program& program) {
  const auto embed = std::ranges::find(program.instructions, OpKind::embed, &Instruction::op);
  if (embed == program.instructions.end()) return std::nullopt;
  const BufferId id = embed->reads[1];
  const Parameter& table = program.parameters[static_cast<size_t>(program.at(id).parameter)];
  const auto readers = std::ranges::count_if(program.instructions,
                                             [id](const Instruction& op) { return reads(op, id); });
  return TokenTable{.name = table.name,
                    .rows = table.shape[0],
                    .width = table.shape[1],
                    .shared = readers > 1,
                    .frozen = table.frozen};
}

// Returns whether a product alone makes the logits, and nothing but the loss reads them.
bool divides_loss(const Program& program, const Instruction& loss) {
  const BufferId logits = loss.reads[0];
  return std::ranges::all_of(program.instructions, [&](const Instruction& op) {
    if (&op == &loss) return true;
    const bool writes = std::ranges::find(op.writes, logits) != op.writes.end();
    return !reads(op, logits) &&
           (!writes || (is_product(axes_of(program, op)) &&
                        attrs_as<ActivationAttrs>(op.attrs).activation == Activation::none));
  });
}

ModelMeasures measure(const Program& program) {
  ModelMeasures m;
  m.layers = static_cast<int64_t>(program.layers.size());
  for (const Layer& layer : program.layers)
    if (layer.number < 0) m.named_layers.push_back(layer.name);
  for (const Parameter& p : program.parameters) {
    m.parameters += elements_of(p.shape);
    if (p.frozen) m.frozen += elements_of(p.shape);
    if (p.blocks != BlockFormat::none) {
      m.packed += elements_of(p.shape);
      m.blocks = p.blocks;
    }
    if (p.shape.rank > 1) m.matrix_elements += elements_of(p.shape);
  }
  for (const Buffer& b : program.buffers)
    if (b.parameter < 0) m.activations += elements_of(b.shape);
  for (const Instruction& op : program.instructions) {
    if (!makes_loss(op.op)) continue;
    const Shape& logits = program.at(op.reads[0]).shape;
    m.rows = logits[0];
    m.logits += elements_of(logits);
    m.divides_loss = program.losses.size() == 1 && divides_loss(program, op);
  }
  m.token_table = token_table(program);
  return m;
}

ModelMeasures measure_layers(ModelConfig model, int64_t layers) {
  model.set_layers(layers);
  Program program;
  const int64_t samples = model.family().any_batch();
  Builder builder(
      program, {.batch = samples, .seq_len = model.seq_len(), .training = false, .checked = false});
  builder.fine_tune(model.fine_tuning());
  model.family().build(builder, model);
  ModelMeasures m = measure(program);
  m.activations /= static_cast<double>(samples);
  m.logits /= static_cast<double>(samples);
  m.rows = std::max<int64_t>(1, m.rows / samples);
  // A model of a file has a mean of its own, which no piece of the rows knows.
  m.divides_loss = m.divides_loss && !model.family().is_fixed;
  return m;
}

}  // namespace

ModelMeasures measure_all_layers(const ModelConfig& model) {
  return measure_layers(model.with_any_vocabulary(), model.layers());
}

ModelMeasures measure_model(const ModelConfig& asked) {
  const ModelConfig model = asked.with_any_vocabulary();
  const int64_t layers = model.layers();
  // Which parameters patterns freeze is not the same in all layers.
  const bool by_name = model.fine_tuning().may_freeze() && layers <= kMostNamedLayers;
  if (layers <= 3 || by_name || model.family().is_fixed) return measure_layers(model, layers);
  ModelMeasures m = measure_layers(model, 2);
  const ModelMeasures three = measure_layers(model, 3);
  const auto grow = [layers](auto& two, auto of_three) {
    two += static_cast<std::remove_reference_t<decltype(two)>>(layers - 2) * (of_three - two);
  };
  grow(m.layers, three.layers);
  grow(m.parameters, three.parameters);
  grow(m.frozen, three.frozen);
  grow(m.packed, three.packed);
  grow(m.matrix_elements, three.matrix_elements);
  grow(m.activations, three.activations);
  return m;
}

}  // namespace dstrain
