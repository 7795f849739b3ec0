#include "runtime/plan/parallel/consumers.h"

#include "runtime/ir/ops/attention.h"

namespace dstrain {

Consumers::Consumers(const Program& program, int ranks) : program_(program), ranks_(ranks) {
  for (size_t i = 0; i < program.instructions.size(); ++i)
    for (const BufferId id : program.instructions[i].reads)
      if (id != kNone) readers_[id].push_back(i);
}

std::optional<ColumnUse> Consumers::columns(BufferId value) const {
  const auto found = readers_.find(value);
  if (found == readers_.end()) return std::nullopt;
  std::optional<ColumnUse> all;
  for (const size_t i : found->second) {
    const std::optional<ColumnUse> one = use(program_.instructions[i], value);
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
