#include "runtime/plan/parallel/consumers.h"

#include "runtime/ir/rule.h"

namespace dstrain {

bool is_adapter_product(const Program& program, const Instruction& op, AdapterMatrix matrix) {
  if (!is_product(axes_of(program, op))) return false;
  const int index = program.at(op.reads[1]).parameter;
  return index >= 0 && program.parameter(index).adapter == matrix;
}

Consumers::Consumers(const Program& program, int ranks) : program_(program), ranks_(ranks) {
  for (const Instruction& op : program.instructions) {
    for (const BufferId id : op.reads)
      if (id != kNone) readers_[id].push_back(&op);
    if (starts(op, axes_of(program, op))) started_.insert(op.writes.begin(), op.writes.end());
  }
  const std::vector<Instruction>& list = program.instructions;
  for (auto op = list.rbegin(); op != list.rend(); ++op)  // readers come first
    for (const BufferId id : op->writes) {
      const auto found = readers_.find(id);
      if (found == readers_.end() || !started_.contains(id)) continue;
      if (const auto use = common_use(id, found->second)) uses_.emplace(id, *use);
    }
}

bool Consumers::starts(const Instruction& op, const OpAxes& axes) const {
  if (is_product(axes)) return program_.at(op.reads[1]).parameter >= 0;
  bool any = false;
  for (size_t i = 0; i < op.reads.size(); ++i) {
    const OperandAxes operand = axes.read(i);
    if (op.reads[i] == kNone || !operand.has_columns()) continue;
    if (axes.along(operand.last()) != Along::mapped) return false;
    if (operand.indices % ranks_ != 0) continue;  // heads of keys that ranks exchange
    if (!started_.contains(op.reads[i])) return false;
    any = true;
  }
  return any;
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
  const OpAxes axes = axes_of(program_, op);
  std::optional<ColumnUse> all;
  for (size_t i = 0; i < op.reads.size(); ++i) {
    if (op.reads[i] != value) continue;
    const OperandAxes operand = axes.read(i);
    if (!operand.has_columns() || operand.indices % ranks_ != 0) return std::nullopt;
    const Along along = axes.along(operand.last());
    if (along == Along::contracted)
      all = ColumnUse{.vocabulary = operand.last() == OperandAxis::classes};
    else if (along == Along::mapped)
      all = use_of_results(op, axes, operand);
    else
      return std::nullopt;
    if (!all) return std::nullopt;
  }
  return all;
}

std::optional<ColumnUse> Consumers::use_of_results(const Instruction& op, const OpAxes& axes,
                                                   const OperandAxes& operand) const {
  std::optional<ColumnUse> all;
  for (size_t i = 0; i < op.writes.size(); ++i) {
    const bool alike = axes.write(i).has_columns() && axes.write(i).last() == operand.last();
    if (!alike || !readers_.contains(op.writes[i])) continue;
    const std::optional<ColumnUse> one = columns(op.writes[i]);
    if (!one) return std::nullopt;
    all = one;
  }
  if (all && operand.sections > 1) all->sections = operand.sections;
  return all;
}

}  // namespace dstrain
