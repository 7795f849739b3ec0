// Trainer: one rank's run, from memory and fresh weights over the steps to the files. It prepares the
// step state, runs the plan, and writes down what came of it; what a step does is the plan's alone.
#pragma once

#include <chrono>
#include <optional>

#include "runtime/engine/run/metrics.h"
#include "runtime/engine/run/model_state.h"
#include "runtime/engine/run/run.h"
#include "runtime/engine/run/run_facts.h"
#include "runtime/engine/step/executor.h"
#include "runtime/storage/checkpoint/checkpoint.h"

namespace dstrain {

class Trainer {
 public:
  // Reserves all memory and makes all kernels; collective. job, dataset and ctx outlive the trainer.
  Trainer(const Job& job, const Dataset& dataset, RunContext& ctx);
  // The same on a device and with kernels of the caller's.
  Trainer(const Job& job, const Dataset& dataset, RunContext& ctx, Backend backend);

  // Weights from the job: fresh, from --init_weights, or a checkpoint. Collective.
  void load();
  // Runs steps until job.steps or a stop signal, with validation and checkpoints; then writes the
  // weights. Collective.
  RunOutcome run();

  // One optimizer step, for tests; returns after the state was read.
  void step();

  const StepState& state() const { return state_; }
  const Plan& plan() const { return plans_.train; }
  const MemoryTable& memory() const { return plans_.memory; }
  const Arenas& arenas() const { return arenas_; }
  const ModelState& model() const { return model_; }
  const Communicator& communicator() const { return comm_; }  // of the device's memory

 private:
  void open_output();
  bool ends_epoch() const;  // the last sample of all was in the step that was done last
  void prepare_state();
  void record(double seconds, int64_t comm_bytes);
  void say_end(int64_t first_step, double seconds) const;
  void validate();
  void save_checkpoint();
  void write_weights();
  void write_traces();
  bool root() const { return ctx_.comm->rank() == 0; }
  BatchRequest batch_at(int64_t first_sample) const {
    return {&dataset_, Split::train, first_sample};
  }
  void take_checkpoint();
  void begin_line();
  void check_space(int64_t checkpoint) const;
  bool resumed_here() const;  // in the output directory itself
  void remove_old() const;
  const RunFacts& facts();

  const Job& job_;
  const Dataset& dataset_;
  RunContext& ctx_;
  Backend backend_;
  std::unique_ptr<Communicator> device_comm_;  // where the device's memory is not the host's
  Communicator& comm_;                         // of the device's memory
  RankPlan plans_;
  Arenas arenas_;
  ModelState model_;
  Executor train_;
  std::optional<Executor> validate_;
  std::optional<MetricsWriter> metrics_;  // rank 0, from the first step on
  StepState state_;
  int64_t next_sample_ = 0;                // of the next step, the first one
  std::optional<CheckpointInfo> resumed_;  // where the run goes on from a checkpoint
  Lineage line_;                           // rank 0: of the checkpoints to come
  RunFacts facts_;                         // rank 0: once they were asked for
  std::vector<StepTrace> traces_;          // of the first steps, where they are traced
  int64_t peak_bytes_ = 0;                 // of the largest rank
  int stop_signal_ = 0;
  std::optional<double> loss_, validation_loss_;  // rank 0: the last ones
};

}  // namespace dstrain
