// Executor: runs a plan, one function per kind of instruction. All kernels are made and all operands
// resolved when it is built; running a step allocates nothing and takes no decision but the plan's.
#pragma once

#include <memory>
#include <vector>

#include "kernels/kernel.h"
#include "runtime/config/job.h"
#include "runtime/core/rank_board.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/arenas.h"
#include "runtime/engine/comm_queue.h"

namespace dstrain {

// What a step is given from outside the plan, and what it answers besides the step state.
struct StepContext {
  StepState* state = nullptr;
  const Dataset* dataset = nullptr;
  Split split = Split::train;
  int64_t first = 0;               // place of the step's first sample in the split's order
  std::span<const int32_t> ids{};  // decoding: the inputs themselves, instead of a dataset
  // Where it has a place for every instruction: seconds are added, per instruction of the program.
  std::span<double> seconds{};
  StepTrace* trace = nullptr;   // filled where given; prepared for the plan
  bool stop_requested = false;  // in: this rank was asked to stop
  bool stop_agreed = false;     // out: some rank was; all ranks see it at the same step
};

class Executor {
 public:
  // `plan`, `arenas`, `job` and `comm` outlive the executor. `slot` may be null.
  Executor(const Plan& plan, const Arenas& arenas, const KernelLibrary& library, const Job& job,
           Communicator& comm, RankSlot* slot);

  // Runs one step; complete on return. Throws RunError: a lost rank, a non-finite gradient where the
  // run does not skip such steps (naming the first tensor that has one).
  void run(StepContext& context) const;

 private:
  struct Operand {
    Tensor tensor;
    int64_t micro_stride = 0;
  };
  struct Bound {
    std::unique_ptr<Kernel> kernel;  // null: the executor's own work
    size_t first = 0;                // index of the first operand; reads, then writes
    size_t reads = 0, writes = 0;
    Tensor workspace;
  };

  OpKind op_of(const Issue& issue) const {
    return plan_.program.instructions[static_cast<size_t>(issue.instruction)].op;
  }
  void run_one(const Bound& bound, const Issue& issue, StepContext& context) const;
  void run_kernel(const Bound& bound, const Issue& issue, const StepContext& context) const;
  void load_batch(const Bound& bound, StepContext& context) const;
  void reduce_counts(StepContext& context) const;
  void record(StepTrace& trace, int64_t begin_ns) const;
  void finish_gradients(const Bound& bound, StepContext& context) const;
  [[noreturn]] void report_non_finite(const StepContext& context) const;
  Tensor operand(const Bound& bound, size_t i, int micro) const;

  const Plan& plan_;
  const Arenas& arenas_;
  const Job& job_;
  Communicator& comm_;
  RankSlot* slot_;
  std::vector<Bound> bound_;
  std::vector<Operand> operands_;
  int32_t collectives_ = 0;  // of a step
  std::unique_ptr<CommQueue> queue_;
  mutable std::vector<double> gathered_;  // answers of gather_values, sized once
};

}  // namespace dstrain
