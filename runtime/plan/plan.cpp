#include "runtime/plan/plan.h"

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"

namespace dstrain {

std::vector<const Plan*> RankPlan::training() const {
  std::vector<const Plan*> plans{&train};
  for (const Plan& plan : other) plans.push_back(&plan);
  return plans;
}

const Plan& RankPlan::training(StepKind kind) const {
  for (const Plan* plan : training())
    if (plan->kind == kind) return *plan;
  throw InternalError(fmt::format("the run has no steps of kind {}", name_of(kind)));
}

std::vector<int32_t> count_posted(const Plan& plan) {
  std::vector<int32_t> counts(static_cast<size_t>(plan.channels));
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.instruction_of(issue);
    if (is_posted(op.op)) ++counts[static_cast<size_t>(op.channel)];
  }
  return counts;
}

std::vector<int32_t> count_collectives(const Plan& plan) {
  std::vector<int32_t> counts = count_posted(plan);
  counts.resize(plan.comm_channels.size());
  return counts;
}

int64_t payload_bytes(const Program& program, const Instruction& op) {
  if (rule_of(op.op).collective == Collective::exchange_rows)
    return std::min(program.at(op.reads[0]).bytes(), program.at(op.writes[0]).bytes());
  int64_t bytes = 0;
  for_operands(op, [&](BufferId id) { bytes = std::max(bytes, program.at(id).bytes()); });
  return bytes;
}

int64_t wire_bytes(const Plan& plan) {
  int64_t total = 0;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.instruction_of(issue);
    if (!is_collective(op.op)) continue;
    if (receives_message(op)) continue;  // its sender counts it
    const int64_t bytes = payload_bytes(plan.program, op);
    const int64_t ranks = ranks_of(plan.place, plan.comm_channel(op));
    total += ring_bytes(*rule_of(op.op).collective, bytes, ranks);
  }
  return total;
}

}  // namespace dstrain
