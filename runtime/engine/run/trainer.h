// Trainer: one rank's run. It allocates memory, loads weights and runs the steps. It sets the step state and tells
// RunOutput what happens; the plan alone decides what a step does.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/engine/run/best_model.h"
#include "runtime/engine/run/model_state.h"
#include "runtime/engine/run/run.h"
#include "runtime/engine/run/run_output.h"
#include "runtime/engine/step/executor.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"

namespace dstrain {

class Trainer {
 public:
  // Allocates all memory and makes all kernels. Collective. The caller must keep job, dataset and ctx alive.
  Trainer(const Job& job, const Dataset& dataset, RunContext& ctx);
  // The same, on the caller's backend.
  Trainer(const Job& job, const Dataset& dataset, RunContext& ctx, Backend backend);

  // Loads the weights that the job names: fresh ones, --init_weights or a checkpoint. Collective.
  void load();
  // Runs steps until job.steps or a stop signal, with validation and checkpoints; then writes the weights.
  // Collective.
  RunOutcome run();

  // Runs one optimizer step; on return state() is its result.
  void step();

  const StepState& state() const { return state_; }
  const Plan& plan() const { return plans_.train; }  // of regular steps
  const Plan& plan(StepKind kind) const { return plans_.training(kind); }
  const Plan& newest_plan() const { return plan_of(ran_); }  // of the newest step
  const MemoryTable& memory() const { return plans_.memory; }
  const Arenas& arenas() const { return arenas_; }
  const ModelState& model() const { return model_; }
  const Communicator& communicator() const { return comm_; }  // works on the device's memory
  MeshComm& mesh() { return mesh_; }

 private:
  bool ends_epoch() const;  // the newest step contained the last training sample
  void make_executors();
  void load_state();
  // Goes on from the state of another program's optimizer (Job::optimizer_state).
  void load_optimizer_state();
  void prepare_state();
  int own_stop_signal() const { return ctx_.stop_signal ? ctx_.stop_signal() : 0; }
  // Returns the stop signal of any rank. Collective.
  int agreed_stop_signal();
  // Returns which training plan the step after `applied_steps` updates runs. `last`: as for kind_of_step().
  size_t plan_after(int64_t applied_steps, std::optional<StepKind> last) const;
  const Plan& plan_of(size_t index) const {
    return index == 0 ? plans_.train : plans_.other[index - 1];
  }
  void record(double seconds, int64_t comm_bytes);
  void log_begin() const;
  // Measures the model, and reports it. Returns whether it is the best so far. Collective.
  bool validate();
  // Throws UserError if validations of this model have no metric by which the job compares them.
  void check_metric() const;
  // Makes the weights those of the best validation, from its checkpoint. Collective.
  void load_best();
  // Returns whether the run measures validation samples.
  bool validates() const { return validation_samples() > 0; }
  // Fills the dataset's table of references, if it has one, before the first step. Collective.
  void find_references();
  // Returns the sums of log-probabilities of this rank's rows of the micro-batches that begin with place `first`; none if
  // another stage has them. Collective.
  std::vector<float> measure_log_probs(Split split, int64_t first, int64_t end);
  // What a validation measures: the loss of all its samples, and losses and metrics of the model by name.
  struct Validated {
    double loss = 0;
    NamedLosses losses{}, metrics{};
  };
  // Runs the validation samples with the parameters that kernels read now. Collective.
  Validated measure_validation();
  bool root() const { return ctx_.comm->rank() == 0; }
  void log_stages() const;
  void log_codecs() const;
  // Returns how many samples a validation takes: where losses are means over samples, whole micro-batches of them.
  int64_t validation_samples() const;
  BatchRequest batch_at(int64_t first_sample) const {
    return {&dataset_, Split::train, first_sample};
  }
  void load_from_checkpoint();
  RunProgress progress() const { return {state_, next_sample_, stop_signal_ != 0, best_.best()}; }

  const Job& job_;
  const Dataset& dataset_;
  RunContext& ctx_;
  Backend backend_;
  std::unique_ptr<Communicator> device_comm_;  // null if the device's memory is the host's
  Communicator& comm_;                         // works on the device's memory
  Place place_;
  MeshComm mesh_;
  RankPlan plans_;
  double full_rate_s_;  // full_rate_seconds(), measured while the memory of the arenas is free
  Arenas arenas_;
  ModelState model_;
  std::vector<std::unique_ptr<Executor>> train_;  // of the training plans, in their order
  std::optional<Executor> validate_;              // for validations, and for references
  size_t ran_ = 0;                                // which training plan the newest step ran
  std::optional<StepKind> last_kind_{};           // of the last update since this process has begun
  StepState state_;
  int64_t next_sample_ = 0;                // first sample of the next step
  std::optional<CheckpointInfo> resumed_;  // the checkpoint that the run resumed from
  RunOutput output_;
  std::array<int64_t, kSpaces> peak_bytes_{};  // of the largest rank, by space
  int stop_signal_ = 0;
  BestModel best_;
};

}  // namespace dstrain
