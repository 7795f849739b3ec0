// Monitor: a sink that writes the metrics as values with DeepSpeed's tags over the number of samples that have
// been seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/engine/metrics/metrics.h"

namespace dstrain {

struct TaggedValue {
  std::string tag;  // "Train/Samples/train_loss", "dstrain/grad_norm"
  double value = 0;
};

// The settings of a Monitor.
struct MonitorOptions {
  int64_t resumed_samples = 0;     // seen before this run, on resume in the same output directory
  bool resumed_validated = false;  // a validation at resumed_samples was reported before this run
  bool loss_scale = false;         // there is one: its tag is written
};

// Return the values of a record, in a fixed order. `loss_scale`: with its tag.
std::vector<TaggedValue> tagged_values(const StepMetrics& metrics, bool loss_scale);
std::vector<TaggedValue> tagged_values(const ValidationMetrics& metrics);

class Monitor : public MetricsSink {
 public:
  explicit Monitor(const MonitorOptions& options) : options_(options) {}

  void step(const StepMetrics& metrics) override;
  // A validation that was reported before this run is not repeated.
  void validation(const ValidationMetrics& metrics) override;

 protected:
  // Writes values after so many samples.
  virtual void write(int64_t samples, const std::vector<TaggedValue>& values) = 0;

  const MonitorOptions& options() const { return options_; }

 private:
  MonitorOptions options_;
};

}  // namespace dstrain
