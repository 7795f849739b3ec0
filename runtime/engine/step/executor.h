// Executor: runs a plan. The constructor makes all kernels and resolves all operands; a step allocates nothing
// and follows the plan's order. The host does the beginning of a step (batch, target count) and gives the rest,
// the body, to the device's streams; on the CPU such a call returns when the work is done. The host waits for
// the device at the end of a step, and before finish_gradients if the host does that. If it does not, a
// device may replay the body as graphs (step_pieces.h).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/core/rank_board.h"
#include "runtime/engine/step/batch_feed.h"
#include "runtime/engine/step/comm_log.h"
#include "runtime/engine/step/device_state.h"
#include "runtime/engine/step/finish_values.h"
#include "runtime/engine/step/guarded_workspace.h"
#include "runtime/engine/step/mesh_comm.h"
#include "runtime/engine/step/multi_tensor_launches.h"
#include "runtime/engine/step/observer/step_observer.h"
#include "runtime/engine/step/queues/comm_queue.h"
#include "runtime/engine/step/queues/copy_queue.h"
#include "runtime/engine/step/queues/drive_queue.h"
#include "runtime/engine/step/step_pieces.h"
#include "runtime/ir/kernel.h"

namespace dstrain {

// The inputs of a step, and its results besides the step state.
struct StepContext {
  StepState* state = nullptr;
  BatchRequest batch{};
  BatchRequest next{};  // of the next step; no dataset: unknown
  // For generation: of each input of the program, in order, its values, instead of `batch`.
  std::span<const std::span<const int32_t>> inputs{};
  // If not empty: one element per instruction of the program, to which the step adds seconds.
  std::span<double> seconds{};
  StepTrace* trace = nullptr;  // if not null: filled; must have been prepared for the plan
  // If set: called with every collective of the step and its instruction, in the order of issue, after the step.
  std::function<void(const CommRecord&, const Instruction&)> on_collective{};
  StepObserver* observer = nullptr;  // if not null: told of every instruction

  // Returns whether the step waits for every instruction, and so is no graph.
  bool by_instruction() const { return !seconds.empty() || trace || observer; }
};

class Executor {
 public:
  // Collective. The caller must keep all arguments alive. `mesh` works on the memory of the backend's device. `slot`
  // may be null; `first_name` is the index in the slot of the first instruction's name.
  // Throws UserError if the job demands a graph and the step cannot be one.
  Executor(const Plan& plan, const Arenas& arenas, const Backend& backend, const Job& job,
           MeshComm& mesh, RankSlot* slot, int64_t first_name = 0);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();  // waits until the device no longer uses the arenas

  // Runs one step; it is complete on return. Steps that are timed, traced or observed synchronize
  // after every instruction and use no graph. A training step whose batch has no target on any rank ends after the targets
  // are counted, as one that is skipped: no weight, moment or loss scale changes. Throws RunError if a rank is lost, or if
  // a gradient is not finite and the job does not skip such steps (with the name of the first such tensor).
  void run(StepContext& context);

  // Returns the sums of the newest step over all targets, without weights, of each loss of a model that has several;
  // empty if it has one.
  std::span<const double> losses() const {
    return losses_.size() > 1 ? std::span<const double>(finish_values_->losses())
                              : std::span<const double>();
  }

  // The graphs of a step, and the pieces of work (kernels, copies) in them; 0 before the first step that is replayed.
  struct GraphSize {
    int64_t graphs = 0, nodes = 0, launches = 0;  // launches: of a step
  };
  GraphSize graph_size() const;

 private:
  // Lets an instruction wait for the first `counts[c]` operations of each channel of the step and publishes the awaited
  // one in the slot. `on_host`: the host itself waits for copies, else later work of the compute stream.
  void wait_for(std::span<const int32_t> counts, bool on_host);
  void wait_in(int channel, int32_t count, bool on_host);
  struct Operand {
    Tensor tensor;  // the first copy
    int64_t copies = 1;
    int64_t stride = 0;  // bytes between copies
  };
  struct Bound {
    std::unique_ptr<Kernel> kernel;  // null: the executor does the op itself
    bool on_host = false;  // the host carries it out, or a drive does with the host's memory
    size_t first = 0;      // index of the first operand; reads come before writes
    size_t reads = 0, writes = 0;
    Tensor workspace;
    GuardedWorkspace guarded;  // that workspace where a sanitizer watches
  };

  const Instruction& instruction_of(const Issue& issue) const {
    return plan_.program.instructions[static_cast<size_t>(issue.instruction)];
  }
  OpKind op_of(const Issue& issue) const { return instruction_of(issue).op; }
  void bind(const Instruction& op, size_t index);
  void settle_graph();
  void check_communication();
  void run_issues(size_t begin, size_t end, StepContext& context);
  void run_launch(const MultiTensorLaunch& launch, const StepContext& context);
  void run_body(StepContext& context);
  void capture(StepPiece& piece, StepContext& context);
  void move_to_graph(const StepPiece& piece, int64_t launch, const StepState& state);
  void run_one(const Bound& bound, const Issue& issue, StepContext& context);
  std::unique_ptr<Kernel> kernel_with(const OpAttrs& attrs, const Issue& issue,
                                      const Bound& bound) const;
  void run_observed(size_t index, StepContext& context);
  void report_completed(std::span<const int32_t> counts);
  void run_kernel(const Bound& bound, const Issue& issue, const StepContext& context) const;
  void load_batch(StepContext& context);
  void reduce_counts(StepContext& context);
  FinishRule finish_rule() const;
  void record(StepTrace& trace, int64_t begin_ns) const;
  void report_collectives(const StepContext& context) const;
  void finish_gradients(const Bound& bound, StepContext& context);
  void check_finish(const StepState& state);
  void end_without_targets(StepContext& context, int64_t begin_ns);
  void post_collective(const Bound& bound, const Issue& issue);
  void post_copy(const Bound& bound, const Issue& issue, const StepContext& context);
  void post_swap(const Bound& bound, const Issue& issue, const StepContext& context);
  int64_t skipped_in_a_row_ = 0;
  [[noreturn]] void report_non_finite(const StepState& state);
  Tensor operand(const Bound& bound, size_t i, int micro) const;

  const Plan& plan_;
  const Arenas& arenas_;
  const Backend& backend_;
  const Job& job_;
  MeshComm& mesh_;
  RankSlot* slot_;
  int64_t first_name_;
  std::vector<std::vector<int32_t>>
      posted_;  // by channel: instructions of a step, in the order of posting
  std::vector<Bound> bound_;
  std::vector<Operand> operands_;
  size_t body_ = 0;              // index in the order of the first issue of the body
  bool counts_targets_ = false;  // what is before the body counts targets
  std::vector<int32_t> posts_;   // operations of a step, by channel
  std::unique_ptr<CommQueue> queue_;
  std::unique_ptr<CopyQueue> copies_;            // null: the step has none
  std::optional<DriveQueue> drives_;             // absent: the step has none
  std::optional<MultiTensorLaunches> launches_;  // absent: the device is the host
  BatchFeed feed_;
  DeviceState device_state_;
  std::unique_ptr<FinishKernels> finish_;  // null: the host does finish_gradients
  Tensor finish_mine_, finish_all_;
  Memory finish_memory_;
  bool use_graph_ = false;
  bool warm_ = false;  // a step has run, so everything that is initialized lazily is initialized
  std::vector<StepPiece> pieces_;                   // of the body; empty: no step is a graph
  std::array<std::unique_ptr<Event>, 2> launched_;  // after the newest launches of graphs
  std::vector<double> gathered_;                    // results of gather_values, sized once
  std::vector<double> sums_;                        // square sums of the units, on the host
  std::vector<double> losses_;                      // of this rank, by the losses of the model
  std::optional<FinishValues> finish_values_;       // if the host does finish_gradients
  std::optional<ObservedStep> observed_;            // of a step with an observer
  int64_t sample_shift_ = 0;                        // of the instruction that an observer changes
};

}  // namespace dstrain
