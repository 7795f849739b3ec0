// RunOutput: what a run writes. The output directory with metrics, checkpoints, weights and traces, and the log lines of
// steps and of the end. The trainer tells it what has happened; it changes nothing of a run's numbers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/metrics/metrics.h"
#include "runtime/engine/resume/run_facts.h"
#include "runtime/engine/run/model_state.h"
#include "runtime/engine/run/run.h"
#include "runtime/engine/step/comm_log.h"
#include "runtime/engine/step/mesh_comm.h"
#include "runtime/engine/traces/step_traces.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"
#include "runtime/storage/checkpoint/lineage.h"
#include "runtime/storage/on_all_ranks.h"
#include "runtime/storage/output_directory.h"
#include "runtime/storage/weights/weights_writer.h"

namespace dstrain {

// How far a run has come.
struct RunProgress {
  const StepState& state;
  int64_t next_sample = 0;   // first sample of the next step
  bool has_stopped = false;  // by a signal, before its last step
  const std::optional<BestValidation>& best;
};

class RunOutput {
 public:
  // The caller must keep all of it alive.
  RunOutput(const Job& job, const Dataset& dataset, RunContext& ctx, ModelState& model,
            MeshComm& mesh);

  // Makes or takes the output directory, and begins its files. `resumed`: the checkpoint that the run goes on from.
  // `full_rate_s`: full_rate_seconds() of its steps (runtime/engine/profile/utilization.h).
  // Throws UserError if what the run writes does not fit there. Collective.
  void open(const RunProgress& progress, const std::optional<CheckpointInfo>& resumed,
            double full_rate_s);
  // Returns the facts of the run. Rank 0 alone may call it.
  const RunFacts& facts();

  // Whether steps are written: on rank 0, once the output is open.
  bool has_metrics() const { return !sinks_.empty(); }
  // Adds a step to the metrics. The caller must have asked has_metrics(). Throws RunError if the directory is gone.
  void add_step(const StepMetrics& metrics);
  // Adds a validation to the metrics, if there are any.
  void add_validation(const ValidationMetrics& metrics);
  void show_validation(int64_t step, int64_t done, int64_t all);  // in the live line
  // Takes a collective of rank 0.
  void add_collective(const CommRecord& record, const std::string& group, int64_t step);
  // Returns the trace that the step is to fill, or null if it needs none.
  StepTrace* new_trace(int64_t step, const Plan& plan);
  // The traces that are files of their own.
  StepTraces& traces() { return traces_; }
  // Returns the phases of the newest step, which has run with its trace, if the job asks for them.
  std::optional<StepPhases> newest_phases() const;
  // Writes the profile of the newest step if it is the one that the job profiles. Collective.
  void write_profile() const;

  // Saves a checkpoint of this step. One that cannot be saved is left out with a warning, unless the job requires it.
  // Collective.
  void save_checkpoint(const RunProgress& progress);
  // Makes it possible to go on with a run that has ended: saves a checkpoint of its last step, unless there is one.
  // Removes those of earlier ends of the run. `required`: throws if it cannot be saved. Collective.
  void save_last(const RunProgress& progress, bool required);
  // Returns whether the output directory has the checkpoint of a step. Collective.
  bool has_checkpoint(int64_t step) const;
  // Writes the weights, then the checkpoint of the run's end, which is tried where the weights could not be written,
  // too, and the traces. Throws what kept the weights from being written. Collective.
  void finish(const RunProgress& progress);
  // Logs the end of the run. `first_step`: steps that were done before it.
  void log_end(const RunProgress& progress, int64_t first_step, double seconds);

 private:
  bool root() const { return ctx_.comm->rank() == 0; }
  void begin_lineage(int64_t step);
  bool writes_vocabulary() const;
  WeightsFormat weights_format() const;
  int64_t weight_bytes() const;  // of the file of weights
  bool has_averages() const { return job_.optimizer.ema_decay > 0; }
  void begin_averages() const;
  // Removes the averages of an earlier run, and their folder, unless this one begins with them or has some itself.
  void remove_earlier_averages() const;
  void open_sinks(const RunProgress& progress, double full_rate_s);
  void check_space(int64_t checkpoint) const;
  void warn_of_space(int64_t checkpoint) const;
  // Removes the chat template that a key named until the checkpoint, where none names one now: the model's holds.
  void remove_template_of_key() const;
  bool resumed_here() const;                    // from a checkpoint in the output directory itself
  int64_t remove_old(int64_t keep_last) const;  // returns how many checkpoints
  // `at_end`: only because the run ends here. Throws if it cannot be saved and is `required`.
  void save(const RunProgress& progress, bool at_end, bool required);
  // Writes the files of the weights that the model has now, or of their averages (dstrain.ema), to the output directory
  // of `job`. Returns how that failed. Collective.
  std::optional<AgreedFailure> write_weights(const Job& job, int64_t applied_steps);
  std::optional<AgreedFailure> write_averages(int64_t applied_steps);

  const Job& job_;
  const Job averages_;  // the same with the folder of the averages as its output directory
  const Dataset& dataset_;
  RunContext& ctx_;
  ModelState& model_;
  MeshComm& mesh_;
  std::optional<OutputDirectory> directory_;  // on rank 0, once it is open
  // On rank 0, once the directory is open: what takes the metrics, in this order.
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  std::optional<CheckpointInfo> resumed_;
  Lineage lineage_;   // on rank 0: of this run's checkpoints
  RunFacts facts_;    // on rank 0: empty until facts() is called
  CommLog comm_log_;  // on rank 0
  // On rank 0: the dtypes of the tensors that keep that of the model's directory.
  std::map<std::string, DType> saved_dtypes_;
  StepTraces traces_;
  std::optional<int64_t>
      best_step_;  // of the checkpoint that stays, as its validation was the best
  // The steps of the newest checkpoint in the output directory and of the newest that was to be saved.
  std::optional<int64_t> saved_step_, tried_step_;
  int64_t skipped_ = 0;          // steps of this run with an overflow, whose update was not applied
  int64_t without_targets_ = 0;  // steps of this run whose batch has no target
  std::optional<double> loss_, validation_loss_;  // on rank 0: the newest
};

}  // namespace dstrain
