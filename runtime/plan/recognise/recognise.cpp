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
  recognise_norms(program);
  recognise_rotary(program);
  recognise_attention(program);
  recognise_heads(program);
  read_originals(program);
  recognise_positions(program);
  remove_unread(program, unread_before);
  drop_unread_constants(program);
}

}  // namespace dstrain
