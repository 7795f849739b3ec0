// What tests of pipelines ask of the plans of all stages.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/plan/proof/verify_ranks.h"
#include "tests/plan/plans.h"

namespace dstrain {

// The train plan of each stage, for the first rank of its data-parallel group.
inline std::vector<Plan> plans_of(const Job& job) {
  std::vector<Plan> plans;
  for (int s = 0; s < job.pipeline.stages; ++s)
    plans.push_back(plan_of(job, s * job.data_ranks()).train);
  return plans;
}

// Throws InternalError if the stages' messages do not fit together.
inline void verify_together(const std::vector<Plan>& plans) {
  std::vector<const Plan*> stages;
  for (const Plan& plan : plans) stages.push_back(&plan);
  verify_ranks(stages);
}

// Every instruction of a step but messages and what each stage does for itself, with its micro-batch.
inline std::multiset<std::string> work_of(const Plan& plan) {
  std::multiset<std::string> list;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (op.when == When::step_begin || op.op == OpKind::finish_gradients || op.op == OpKind::send ||
        op.op == OpKind::recv)
      continue;
    list.insert(fmt::format("{} of {}, {}", name_of(op.op), group_of(plan, op), issue.micro));
  }
  return list;
}

}  // namespace dstrain
