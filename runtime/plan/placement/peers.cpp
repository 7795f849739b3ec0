#include "runtime/plan/placement/peers.h"

#include <string>
#include <unordered_set>

#include "runtime/ir/rule.h"

namespace dstrain {

std::vector<BufferId> read_by_peers(const Plan& plan, const Instruction& op) {
  if (!is_collective(op.op) || ranks_of(plan.place, plan.comm_channel(op)) == 1) return {};
  return op.reads;
}

void mark_shared(const std::vector<Plan*>& plans) {
  std::unordered_set<std::string> names;
  for (Plan* plan : plans) {
    Program& p = plan->program;
    for (const Instruction& op : p.instructions)
      for (const BufferId id : read_by_peers(*plan, op)) {
        Buffer& root = p.at(p.root(id));
        root.shared = true;
        names.insert(root.name);
      }
  }
  for (Plan* plan : plans)
    for (const std::string& name : names)
      if (const BufferId id = plan->program.find(name); id != kNone)
        plan->program.at(id).shared = true;
}

}  // namespace dstrain
