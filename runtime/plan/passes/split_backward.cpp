// The backward pass in two phases. Input gradients are what other stages wait for; weight gradients are computed
// later, from values that are kept until then. What recompute() computes again is ready in the first phase.
// Those of a loss in pieces are computed beside it, in the forward phase, and those of an MLP in pieces in the first
// phase (runtime/plan/chunks).
#include <algorithm>
#include <set>

#include "runtime/core/error.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {

void split_backward(Program& program, const std::set<BufferId>& in_pieces) {
  std::set<BufferId> gradients;
  for (const Parameter& p : program.parameters)
    if (p.gradient != kNone && !in_pieces.contains(p.gradient)) gradients.insert(p.gradient);
  std::set<BufferId> read_later;
  for (Instruction& op : program.instructions) {
    for (const BufferId id : op.writes)
      check(!read_later.contains(id), "{} of {} overwrites {}, which a weight gradient reads later",
            name_of(op.op), program.group_name(op), program.at(id).name);
    const auto is_gradient = [&](BufferId id) { return gradients.contains(id); };
    if (op.phase == Phase::forward || !std::ranges::any_of(op.writes, is_gradient)) continue;
    op.phase = Phase::weight_grad;
    for (const BufferId id : op.reads)
      if (id != kNone) read_later.insert(id);
  }
  // Not that of std::ranges, which clang 14 does not compile with the library of GCC 12.
  std::stable_partition(program.instructions.begin(), program.instructions.end(),
                        [](const Instruction& op) { return op.phase != Phase::weight_grad; });
}

}  // namespace dstrain
