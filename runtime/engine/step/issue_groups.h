// IssueGroups: instructions of a step's order that follow each other and that the device runs as one launch.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/ir/kernel.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// Instructions that one launch carries out, in the order of issue.
struct IssueGroup {
  size_t first = 0, count = 0;  // positions in the plan's order
  std::unique_ptr<KernelGroup> kernel{};
  std::vector<Tensor> operands{};  // of all instructions, reads before writes
  std::vector<KernelCall> calls{};
};

class IssueGroups {
 public:
  // Finds the groups that `library` has kernels for among instructions whose only issue is at the end of a step. No
  // instruction of a group uses memory that another one of it writes. `tensor`: a buffer's operand, empty for kNone.
  IssueGroups(const Plan& plan, const KernelLibrary& library,
              const std::function<Tensor(BufferId)>& tensor);

  // Returns the group that begins at this position of the order, or null.
  const IssueGroup* at(size_t position) const;
  // Runs a group of this object. `state`: the step state where the device reads it.
  void run(const IssueGroup& group, const StepState* state);

 private:
  std::vector<IssueGroup> groups_;  // in the plan's order
};

}  // namespace dstrain
