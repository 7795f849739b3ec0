// The part of Builder that adds low-rank adapters to products.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/ir/builder/builder.h"
#include "runtime/ir/rule.h"

namespace dstrain {
BufferId Builder::unpacked(BufferId weight) {
  const int index = program_.at(weight).parameter;
  if (!tuning_.lora || tuning_.lora->base == BlockFormat::none || index < 0) return weight;
  Parameter& p = program_.parameters[static_cast<size_t>(index)];
  if (!p.frozen || program_.layers.back().number < 0) return weight;
  const BlockFormat format = tuning_.lora->base;
  if (p.blocks == BlockFormat::none) {
    p.blocks = format;
    Buffer& value = program_.at(weight);
    value.dtype = DType::u8;
    // Shapes alone may have more elements than 63 bits count, and nothing asks for their bytes.
    if (options_.checked) value.shape = {packed_bytes(format, p.shape.elements())};
  }
  return emit(OpKind::unpack_weight, UnpackAttrs{format}, {weight},
              {.name = fresh(stem(weight) + ".weight"), .shape = p.shape, .dtype = options_.dtype});
}

std::string Builder::adapted_module(BufferId weight) const {
  constexpr std::string_view end = ".weight";
  const int index = program_.at(weight).parameter;
  if (!tuning_.lora || index < 0) return "";
  const std::string& name = program_.parameters[static_cast<size_t>(index)].name;
  if (!name.ends_with(end)) return "";
  // PEFT would put the adapter of a head that shares the table of tokens on the embedding.
  const auto is_table_of_tokens = [&](const Instruction& op) {
    const auto read = std::ranges::find(op.reads, weight);
    return read != op.reads.end() && axes_of(program_, op)
                                         .read(static_cast<size_t>(read - op.reads.begin()))
                                         .has(OperandAxis::classes);
  };
  if (std::ranges::any_of(program_.instructions, is_table_of_tokens)) return "";
  std::string module = name.substr(0, name.size() - end.size());
  const bool numbered = program_.layers.back().number >= 0;
  return tuning_.lora->takes(module, numbered) ? module : "";
}

BufferId Builder::add_adapter(BufferId y, BufferId x, BufferId weight, const std::string& module) {
  const LoraConfig lora = *tuning_.lora;
  const BufferId declared = program_.find("param:" + module + ".weight");
  const Parameter& base = program_.parameters[static_cast<size_t>(program_.at(declared).parameter)];
  const int64_t outputs = base.shape[0], inputs = base.shape[1];
  const int64_t rows_in_memory = program_.at(weight).shape[0];
  // Kaiming's uniform distribution with a slope of sqrt(5), as PEFT begins.
  const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(inputs)));
  const std::string a_name = fmt::format("{}{}", module, kLoraA),
                    b_name = fmt::format("{}{}", module, kLoraB);
  const BufferId a = parameter(a_name, {lora.r, inputs}, Init::uniform, bound);
  const BufferId b =
      declare(b_name, {outputs, lora.r}, rows_in_memory, Init::zeros, 0, Trainable::yes);
  for (const auto& [matrix, id] : {std::pair{AdapterMatrix::a, a}, {AdapterMatrix::b, b}}) {
    Parameter& p = program_.parameters[static_cast<size_t>(program_.at(id).parameter)];
    p.adapter = matrix;
    p.adapts = module + ".weight";
  }
  const int64_t rows = program_.at(y).shape[0], seq_len = rows / options_.batch;
  const BufferId dropped = dropout(x, seq_len, lora.dropout);
  const auto product = [this, rows](BufferId of, BufferId by) {
    return emit(OpKind::linear, ActivationAttrs{}, {of, by, kNone},
                activation_buffer(stem(by), {rows, program_.at(by).shape[0]}, of));
  };
  const BufferId low = scale(product(dropped, a), static_cast<float>(lora.scale()));
  return add_dropout(y, product(low, b), seq_len, 0);
}

}  // namespace dstrain
