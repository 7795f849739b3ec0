// MultiTensorLaunches: instructions of a step's order that follow each other and that the device runs as one launch.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/ir/kernel.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// Instructions that one launch carries out, in the order of issue.
struct MultiTensorLaunch {
  size_t first = 0, count = 0;  // positions in the plan's order
  std::unique_ptr<MultiTensorKernel> kernel{};
  std::vector<Tensor> operands{};  // of all instructions, reads before writes
  std::vector<KernelCall> calls{};
};

class MultiTensorLaunches {
 public:
  // Finds the launches that `library` has kernels for among instructions whose only issue is at the end of a step. No
  // instruction of a launch uses memory that another one of it writes. `tensor`: a buffer's operand, empty for kNone.
  MultiTensorLaunches(const Plan& plan, const KernelLibrary& library,
                      const std::function<Tensor(BufferId)>& tensor);

  // Returns the launch that begins at this position of the order, or null.
  const MultiTensorLaunch* at(size_t position) const;
  // Runs a launch of this object. `state`: the step state where the device reads it.
  void run(const MultiTensorLaunch& launch, const StepState* state);

 private:
  std::vector<MultiTensorLaunch> launches_;  // in the plan's order
};

}  // namespace dstrain
