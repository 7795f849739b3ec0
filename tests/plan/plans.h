// What tests of the plan ask of one.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "tests/support/fake_library.h"

namespace dstrain {

inline Plan train_plan(const Job& job, Place place = {0, 1}) {
  return make_rank_plan(job, place, fake_inputs()).train;
}

inline std::string group_of(const Plan& plan, const Instruction& op) {
  return plan.program.groups[static_cast<size_t>(op.group)];
}

// The names of a group's ops, in the order of the list.
inline std::vector<std::string> op_names(const Plan& plan, const std::string& group) {
  std::vector<std::string> names;
  for (const Instruction& op : plan.program.instructions)
    if (group_of(plan, op) == group) names.emplace_back(name_of(op.op));
  return names;
}

}  // namespace dstrain
