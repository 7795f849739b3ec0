// Executor: runs a plan, one function per kind of instruction. All kernels are made and all operands
// resolved when it is built; running a step allocates nothing and takes no decision but the plan's.
// The host begins a step (batch, target count) and gives the rest to the device's streams; on the CPU
// every such call returns with the work done. It waits for the device where ranks exchange what the
// host has to add, and at the end of the step; where it has nothing to add, a device may replay the
// step as one graph.
#pragma once

#include <memory>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/core/rank_board.h"
#include "runtime/engine/step/batch_feed.h"
#include "runtime/engine/step/comm_queue.h"
#include "runtime/engine/step/device_state.h"
#include "runtime/ir/kernel.h"

namespace dstrain {

// What a step is given from outside the plan, and what it answers besides the step state.
struct StepContext {
  StepState* state = nullptr;
  BatchRequest batch{};
  BatchRequest next{};             // the next step's, where it is known
  std::span<const int32_t> ids{};  // decoding: the inputs themselves, instead of a dataset
  // Where it has a place for every instruction: seconds are added, per instruction of the program.
  std::span<double> seconds{};
  StepTrace* trace = nullptr;  // filled where given; prepared for the plan
};

class Executor {
 public:
  // All but `slot` outlive the executor; `comm` is that of the backend's device. `slot` may be null;
  // the names of the plan's instructions begin there at `first_name`.
  // Throws UserError where the job wants a graph that cannot be.
  Executor(const Plan& plan, const Arenas& arenas, const Backend& backend, const Job& job,
           Communicator& comm, RankSlot* slot, int64_t first_name = 0);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();  // after a failure: waits for what the device still does with the arenas

  // Runs one step; complete on return. On a device, steps that are timed or traced run instruction by
  // instruction. Throws RunError: a lost rank, a non-finite gradient where the run does not skip such
  // steps (naming the first tensor that has one).
  void run(StepContext& context);

 private:
  // Waits for the first `collectives` of the step; the slot says for which.
  void wait_for(int32_t collectives) const;
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
  void bind(const Instruction& op, size_t index);
  void settle_graph();
  void run_issues(size_t begin, size_t end, StepContext& context);
  void run_body(StepContext& context);
  void run_one(const Bound& bound, const Issue& issue, StepContext& context);
  void run_kernel(const Bound& bound, const Issue& issue, const StepContext& context) const;
  void load_batch(StepContext& context);
  void reduce_counts(StepContext& context);
  void record(StepTrace& trace, int64_t begin_ns) const;
  void finish_gradients(const Bound& bound, StepContext& context);
  void check_finish(const StepState& state);
  int64_t skipped_in_a_row_ = 0;
  [[noreturn]] void report_non_finite(const StepState& state);
  Tensor operand(const Bound& bound, size_t i, int micro) const;

  const Plan& plan_;
  const Arenas& arenas_;
  const Backend& backend_;
  const Job& job_;
  Communicator& comm_;
  RankSlot* slot_;
  int64_t first_name_;
  std::vector<int32_t> collective_instructions_;  // of a step, as they are posted
  std::vector<Bound> bound_;
  std::vector<Operand> operands_;
  size_t body_ = 0;  // the first issue of the order that is not the host's beginning of a step
  int32_t collectives_ = 0;  // of a step
  std::unique_ptr<CommQueue> queue_;
  BatchFeed feed_;
  DeviceState device_state_;
  std::unique_ptr<FinishKernels> finish_;  // null: finish_gradients is the host's work
  Tensor finish_mine_, finish_all_;
  Memory finish_memory_;
  bool use_graph_ = false;
  bool warm_ = false;  // a step has run, so whatever is set up lazily is
  std::unique_ptr<Graph> graph_;
  std::vector<double> gathered_;  // answers of gather_values, sized once
  std::vector<double> sums_;      // of the units, on the host
};

}  // namespace dstrain
