#include "runtime/plan/parallel/consumers.h"

#include "runtime/core/model/fine_tuning.h"
#include "runtime/ir/ops/attention.h"

namespace dstrain {

bool is_adapter_product(const Program& program, const Instruction& op, std::string_view end) {
  if (op.op != OpKind::linear) return false;
  const int index = program.at(op.reads[1]).parameter;
  return index >= 0 && program.parameters[static_cast<size_t>(index)].name.ends_with(end);
}

Consumers::Consumers(const Program& program, int ranks) : program_(program), ranks_(ranks) {
  std::unordered_map<BufferId, std::vector<const Instruction*>> readers;
  for (const Instruction& op : program.instructions) {
    for (const BufferId id : op.reads)
      if (id != kNone) readers[id].push_back(&op);
    if (is_adapter_product(program, op, kLoraB)) adapters_.insert(op.writes[0]);
  }
  const std::vector<Instruction>& list = program.instructions;
  for (auto op = list.rbegin(); op != list.rend(); ++op)  // readers come first
    for (const BufferId id : op->writes) {
      const auto found = readers.find(id);
      if (found == readers.end()) continue;
      if (const auto use = common_use(id, found->second)) uses_.emplace(id, *use);
    }
}

bool Consumers::adds_adapter(const Instruction& op, BufferId value) const {
  return op.op == OpKind::add_dropout && op.reads[0] == value && adapters_.contains(op.reads[1]);
}

std::optional<ColumnUse> Consumers::common_use(
    BufferId value, const std::vector<const Instruction*>& readers) const {
  std::optional<ColumnUse> all;
  for (const Instruction* const reader : readers) {
    const std::optional<ColumnUse> one = use(*reader, value);
    if (!one || (all && all->sections != one->sections)) return std::nullopt;
    all = one;
  }
  return all;
}

std::optional<ColumnUse> Consumers::use(const Instruction& op, BufferId value) const {
  switch (op.op) {
    case OpKind::activation:
    case OpKind::gated:
    case OpKind::scale:
    case OpKind::rotary:
      return columns(op.writes[0]);
    case OpKind::add_dropout:
      if (!adds_adapter(op, value)) return std::nullopt;
      return columns(op.writes[0]);
    case OpKind::rms_norm:  // of heads
      if (program_.at(op.reads[1]).shape.elements() == program_.at(value).shape[-1])
        return std::nullopt;
      return columns(op.writes[0]);
    case OpKind::attention:
      if (value != op.reads[0] && attrs_as<AttentionAttrs>(op.attrs).kv_heads % ranks_ != 0)
        return std::nullopt;
      return ColumnUse{.sections = ops::AttentionInputs(op).count == 1 ? 3 : 1};
    case OpKind::linear:
      if (op.reads[0] != value) return std::nullopt;
      return ColumnUse{};
    case OpKind::cross_entropy:
      if (op.reads[0] != value) return std::nullopt;
      return ColumnUse{.vocabulary = true};
    default:
      return std::nullopt;
  }
}

}  // namespace dstrain
