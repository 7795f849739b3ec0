// Metrics: what rank 0 tells the world about each step: metrics.jsonl, the log line, the progress bar.
// Stands on core/log.h. Invariant: a line of the file is written with one call and is whole or absent
// after a crash; no allocation depends on the number of steps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/log/progress_bar.h"

namespace dstrain {

// The members of a metrics.jsonl object, in the file's order (contract: output directory).
struct StepMetrics {
  int64_t step = 0;  // from 1
  double loss = 0;
  float lr = 0;
  float grad_norm = 0;
  float loss_scale = 1;
  bool skipped = false;
  int64_t tokens = 0;
  double samples_per_second = 0;
  double step_ms = 0;
  int64_t peak_bytes = 0;
  int64_t comm_bytes = 0;
};

// One line of metrics.jsonl, line break included: numbers in their shortest round-trip form,
// non-finite ones null.
std::string to_json(const StepMetrics& metrics);
std::string validation_json(int64_t step, double val_loss);

// One line of the log; it has step=, loss=, lr=, grad_norm=, samples/s= and mem=.
std::string log_line(const StepMetrics& metrics);

// "42s", "3m07s", "2h05m", "5d03h"; "?" for what is no time.
std::string duration_text(double seconds);

// The median of the newest step times: a pause or a slow first step does not move it.
class StepTimes {
 public:
  void add(double milliseconds);
  double median() const;  // milliseconds; 0 before the first

 private:
  static constexpr size_t kWindow = 31;
  std::array<double, kWindow> times_{};
  size_t count_ = 0;  // ever added
};

struct MetricsOptions {
  std::string path;   // of metrics.jsonl; its directory exists
  int64_t steps = 0;  // the run's last step
  int64_t steps_per_print = 10;
  // Steps done before this run (resume): lines of the file up to this step stay, later ones and what
  // a crash left half written go. 0: the file is replaced.
  int64_t resumed_step = 0;
};

class MetricsWriter {
 public:
  // Opens the file. Throws RunError where it cannot be written.
  explicit MetricsWriter(const MetricsOptions& options);
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  ~MetricsWriter();

  // Appends a line to the file; every steps_per_print steps one to the log. Throws RunError naming the
  // file where the disk refuses (full, for instance).
  void step(const StepMetrics& metrics);
  void validation(int64_t step, double val_loss);

  // The progress bar between steps, on a terminal: before the first one, and while a validation goes on.
  void begin() { draw_progress(options_.resumed_step, "first step"); }
  void validating(int64_t step, int64_t done, int64_t all);

 private:
  void append(std::string_view line);
  void draw_progress(int64_t step, const std::string& what);
  void clear_progress();

  MetricsOptions options_;
  int file_ = -1;
  int64_t bytes_ = 0;  // of the whole lines in the file
  std::optional<ProgressBar> bar_;
  StepTimes times_;
};

}  // namespace dstrain
