// MetricsLog: the lines that a run prints of its metrics, and the live line.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "runtime/core/log/live_line.h"
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
  // The model predicts tokens: validations have a perplexity, and the live line has tokens per second.
  bool tokens = false;
  double full_rate_s = 0;     // LiveRates::full_rate_s
  double quiet_seconds = 10;  // without news, until the live line says for how long there are none
  std::string output{};       // the output directory, which the last line names
};

// Logs a line every steps_per_print steps, for each validation and at the end of the run, and draws the live line
// if the output is a terminal: before the first step, after steps, during validation, and where nothing happens for long.
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
  static void log_phases(const StepPhases& phases);
  void show(int64_t step, std::string what);
  void draw(double seconds);
  void clear();
  void watch(const std::stop_token& stop);

  MetricsLogOptions options_;
  StepTimes times_;
  std::mutex mutex_;  // of what follows
  std::optional<LiveLine> live_;
  int64_t step_ = 0;      // the newest
  std::string what_;      // behind it in the live line; empty: none is shown
  int64_t since_ns_ = 0;  // when that was news
  std::condition_variable_any ends_;
  std::jthread
      watcher_;  // draws the live line where there are no news; joined before the rest goes
};

}  // namespace dstrain
