// MetricsLog: the lines that a run prints of its metrics, and the progress bar.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/core/log/progress_bar.h"
#include "runtime/engine/metrics/metrics.h"

namespace dstrain {

// The median of the newest step times, which a pause or a slow first step does not change.
class StepTimes {
 public:
  void add(double milliseconds);
  double median() const;  // milliseconds; 0 before the first

 private:
  static constexpr size_t kWindow = 31;
  std::array<double, kWindow> times_{};
  size_t count_ = 0;  // ever added
};

// The settings of a MetricsLog.
struct MetricsLogOptions {
  int64_t steps = 0;  // the last step of the run
  int64_t steps_per_print = 10;
  int64_t resumed_step = 0;  // steps that were done before this run, on resume
  // The lines of phases are printed for every step, not only every steps_per_print steps.
  bool all_phases = true;
  bool perplexity = false;  // the line of a validation has it
  std::string output{};     // the output directory, which the last line names
};

// Logs a line every steps_per_print steps, for each validation and at the end of the run, and draws the progress bar
// if the output is a terminal: before the first step, after steps and during validation.
class MetricsLog : public MetricsSink {
 public:
  explicit MetricsLog(MetricsLogOptions options);
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  ~MetricsLog() override;

  void begin() override;
  void step(const StepMetrics& metrics) override;
  void validation(const ValidationMetrics& metrics) override;
  void validating(int64_t step, int64_t done, int64_t all) override;
  void end(const RunEnd& end) override;

 private:
  void log_phases(const StepPhases& phases);
  void draw_progress(int64_t step, const std::string& what);
  void clear_progress();

  MetricsLogOptions options_;
  std::optional<ProgressBar> bar_;
  StepTimes times_;
};

}  // namespace dstrain
