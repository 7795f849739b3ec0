#include "runtime/plan/recognise/recognise.h"

#include <algorithm>
#include <set>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

std::set<BufferId> operands_of(const Program& program) {
  std::set<BufferId> read;
  for (const Instruction& op : program.instructions) read.insert(op.reads.begin(), op.reads.end());
  return read;
}

// Returns the results that no instruction reads.
std::set<BufferId> unread_results(const Program& program) {
  const std::set<BufferId> read = operands_of(program);
  std::set<BufferId> unread;
  for (const Instruction& op : program.instructions)
    for (const BufferId id : op.writes)
      if (!read.contains(id)) unread.insert(id);
  return unread;
}

// Removes instructions of which no result is read, unless the first one was not read before either.
void remove_unread(Program& program, const std::set<BufferId>& unread_before) {
  for (bool again = true; again;) {
    const std::set<BufferId> unread = unread_results(program);
    const auto removed = std::erase_if(program.instructions, [&](const Instruction& op) {
      return rule_of(op.op).of_model && !unread_before.contains(op.writes[0]) &&
             std::ranges::all_of(op.writes, [&](BufferId id) { return unread.contains(id); });
    });
    again = removed > 0;
  }
}

// Lets what named operations write be matrices: passes divide their rows.
void make_matrices(Program& program) {
  for (const Instruction& op : program.instructions) {
    const auto* const map = std::get_if<MapAttrs>(&op.attrs);
    const OpRule& rule = rule_of(op.op);
    if (!rule.of_model || rule.walks_space || (map && !map->views.empty())) continue;
    Shape& shape = program.at(op.writes[0]).shape;
    if (shape.rank > 2) shape = {shape.elements() / shape[-1], shape[-1]};
  }
}

// Lets constants that no instruction reads take no memory: masks, tables of angles.
void drop_unread_constants(Program& program) {
  const std::set<BufferId> read = operands_of(program);
  std::erase_if(program.constants, [&](const ProgramConstant& constant) {
    if (read.contains(constant.buffer)) return false;
    program.at(constant.buffer).lifetime = Lifetime::micro;
    return true;
  });
}

}  // namespace

void recognise(Program& program) {
  const std::set<BufferId> unread_before = unread_results(program);
  recognise_formulas(program);
  recognise_products(program);
  recognise_norms(program);
  recognise_batch_norms(program);
  recognise_rotary(program);
  recognise_attention(program);
  recognise_heads(program);
  read_originals(program);
  recognise_embeddings(program);
  make_matrices(program);
  recognise_losses(program);
  remove_unread(program, unread_before);
  overwrite_logits(program);
  drop_unread_constants(program);
}

}  // namespace dstrain
