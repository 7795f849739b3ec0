// Sparse gradients: the rows of a micro-batch's tokens travel in place of the table that they are rows of.
#include <utility>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/gradient_codecs.h"

namespace dstrain {

bool puts_token_rows(const Program& program, const Instruction& op) {
  if (rule_of(op.op).gradient_terms != GradientTerms::rows) return false;
  const OpAxes axes = axes_of(program, op);
  return axes.along(OperandAxis::classes) == Along::made && axes.write(0).has(OperandAxis::classes);
}

TokenRows::TokenRows(const CodecPlan& plan, int unit, StepGradients& step)
    : WireGradients(plan, unit, step) {
  const std::vector<int>& parameters = this->unit().parameters;
  // Without another parameter only padding follows, whose gradient is 0 on every rank.
  add_from(parameters.size() == 1 ? this->unit().elements
                                  : program().parameter(parameters[1]).offset);
}

// The exchange of ids and rows is in front of the instruction that reads them. A rank's own rows are computed where they
// are sent from.
void TokenRows::prepare(Instruction& writer, std::vector<Instruction>& list) {
  if (!puts_token_rows(program(), writer)) return;
  const BufferId d_x = writer.reads[0], ids = writer.reads[1];
  const BufferId rows = add_gathered("token_rows", d_x), all_ids = add_gathered("token_ids", ids);
  Buffer& mine = program().at(d_x);
  check(mine.parent == kNone, "{} lies in another buffer", mine.name);
  mine.parent = rows;
  mine.parent_offset = plan().place.rank() * mine.shape.elements();
  for (const auto& [from, to] : {std::pair{ids, all_ids}, std::pair{d_x, rows}}) {
    Instruction gather = writer;
    gather.op = OpKind::all_gather;
    gather.attrs = {};
    gather.accumulate = Accumulate::never;
    gather.reads = {from};
    gather.writes = {to};
    list.push_back(std::move(gather));
  }
  writer.reads = {rows, all_ids};
}

BufferId TokenRows::add_gathered(const std::string& name, BufferId part) const {
  const int64_t elements = program().at(part).shape.elements();
  return program().add_buffer({.name = name,
                               .shape = {plan().place.ranks() * elements},
                               .dtype = program().at(part).dtype,
                               .memory = MemoryClass::communication});
}

}  // namespace dstrain
