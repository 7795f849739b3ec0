// Metrics: what rank 0 reports of a run, as records of a step, of a validation and of the run's end. A sink
// writes them somewhere: to metrics.jsonl, or to the log and the live line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/metrics/phase_times.h"

namespace dstrain {

// Means of losses or metrics, by name.
using NamedLosses = std::vector<std::pair<std::string, double>>;

// The metrics of one step: the members of an object in metrics.jsonl, in the order of the file
// (docs/formats.md).
struct StepMetrics {
  int64_t step = 0;     // from 1
  int64_t samples = 0;  // that have been seen since the first step, not in the file
  double loss = 0;      // not a number: the batch has no target
  float lr = 0;
  float grad_norm = 0;
  float loss_scale = 1;
  bool skipped = false;
  int64_t tokens = 0;
  double samples_per_second = 0;
  double step_ms = 0;
  int64_t peak_bytes = 0;
  int64_t comm_bytes = 0;
  int64_t host_bytes = 0,
          disk_bytes = 0;  // like peak_bytes, of offloaded tensors; 0: not in the file
  // Relative errors of what travels quantized, by class; empty: not measured in this step, not in the file.
  std::vector<std::pair<std::string, double>> codec_error{};
  // The mean of each loss of a model that has several, by name; empty: it has one, not in the file.
  NamedLosses losses{};
  NamedLosses metrics{};  // of the model itself, by name: members of their own in the file
  std::optional<StepPhases> phases{};  // with wall_clock_breakdown, not in the file
};

// The metrics of a validation.
struct ValidationMetrics {
  int64_t step = 0;     // the step that it follows; 0: before the first
  int64_t samples = 0;  // like that of a step
  double loss = 0;
  NamedLosses losses{}, metrics{};  // like those of a step
};

// How a run has ended.
struct RunEnd {
  int64_t first_step = 0, steps = 0;  // steps done before this run, and by it
  bool stopped = false;               // a signal stopped the run
  bool saved = true;                  // there is a checkpoint of the last step
  int64_t skipped = 0;  // of these steps, those with an overflow, whose update was not applied
  int64_t without_targets = 0;  // of these steps, those whose batch has no target
  double seconds = 0;
  std::optional<double> loss = {}, validation_loss = {};  // the newest
};

// Takes the records of a run, on rank 0, from one thread. A record that cannot be written must not end the run.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  virtual void begin() {}  // before the first step
  virtual void step(const StepMetrics& metrics) = 0;
  // A run that is resumed may report the validation of the step that it goes on from once more.
  virtual void validation(const ValidationMetrics& metrics) = 0;
  // A validation after `step` has done so many of all its batches.
  virtual void validating(int64_t /*step*/, int64_t /*done*/, int64_t /*all*/) {}
  virtual void end(const RunEnd& /*end*/) {}
};

}  // namespace dstrain
