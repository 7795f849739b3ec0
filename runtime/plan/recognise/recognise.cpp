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

// Removes instructions of which no result is read, if one was before.
void remove_unread(Program& program, const std::set<BufferId>& read_before) {
  for (bool again = true; again;) {
    const std::set<BufferId> read = operands_of(program);
    const auto removed = std::erase_if(program.instructions, [&](const Instruction& op) {
      return rule_of(op.op).of_model &&
             std::ranges::any_of(op.writes,
                                 [&](BufferId id) { return read_before.contains(id); }) &&
             std::ranges::none_of(op.writes, [&](BufferId id) { return read.contains(id); });
    });
    again = removed > 0;
  }
}

}  // namespace

void recognise(Program& program) {
  const std::set<BufferId> read_before = operands_of(program);
  recognise_formulas(program);
  recognise_norms(program);
  recognise_rotary(program);
  recognise_heads(program);
  recognise_positions(program);
  remove_unread(program, read_before);
}

}  // namespace dstrain
