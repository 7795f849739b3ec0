// Metrics: what rank 0 reports about each step, in metrics.jsonl, in the log and in the progress bar. A line
// of the file is written with one call, so it is complete or absent after a crash. Memory does not grow with
// the number of steps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/log/progress_bar.h"

namespace dstrain {

// Means of losses, by name.
using NamedLosses = std::vector<std::pair<std::string, double>>;

// The metrics of one step: the members of an object in metrics.jsonl, in the order of the file
// (docs/formats.md).
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
  int64_t host_bytes = 0,
          disk_bytes = 0;  // like peak_bytes, of offloaded tensors; 0: not in the file
  // Relative errors of what travels quantized, by class; empty: not measured in this step, not in the file.
  std::vector<std::pair<std::string, double>> codec_error{};
  // The mean of each loss of a model that has several, by name; empty: it has one, not in the file.
  NamedLosses losses{};
};

// Return one line of metrics.jsonl with its line break. Numbers have their shortest round-trip form;
// non-finite numbers are null.
std::string to_json(const StepMetrics& metrics);
std::string validation_json(int64_t step, double val_loss, const NamedLosses& val_losses = {});

// Returns the log line of a step, with step=, loss=, lr=, grad_norm=, samples/s= and mem=.
std::string log_line(const StepMetrics& metrics);

// Returns "validation loss 3.0311", and where `perplexity` says so ", perplexity 20.72" behind it.
std::string validation_text(double val_loss, bool perplexity);

// Returns "42s", "3m07s", "2h05m", "5d03h"; "?" for a negative, huge or non-finite number.
std::string duration_text(double seconds);

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

// The settings of a MetricsWriter: the file that it writes, and the steps of the run.
struct MetricsOptions {
  std::string path;   // of metrics.jsonl; its directory must exist
  int64_t steps = 0;  // the last step of the run
  int64_t steps_per_print = 10;
  // Steps that were done before this run, on resume. The file keeps its lines up to this step; later lines and
  // an incomplete last line are removed. 0: the file is replaced.
  int64_t resumed_step = 0;
  bool perplexity = false;  // a validation's line in the log has it
};

// Writes the metrics of a run on rank 0: lines of metrics.jsonl, log lines and the progress bar. It owns the
// open file. Only one thread may use it.
class MetricsWriter {
 public:
  // Opens the file. Throws RunError if it cannot be written.
  explicit MetricsWriter(const MetricsOptions& options);
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  ~MetricsWriter();

  // Append a line to the file; step() also logs a line every steps_per_print steps. A line that cannot be written, for
  // example because the disk is full, is left out: a warning names the file and the reason, and another one says when
  // lines are written again. A validation of the resumed step that the file has already is only logged.
  void step(const StepMetrics& metrics);
  void validation(int64_t step, double val_loss, const NamedLosses& val_losses = {});

  // Draw the progress bar, if the output is a terminal: before the first step and during validation.
  void begin() { draw_progress(options_.resumed_step, "first step"); }
  void validating(int64_t step, int64_t done, int64_t all);

 private:
  void append(int64_t step, std::string_view line);
  void draw_progress(int64_t step, const std::string& what);
  void clear_progress();

  MetricsOptions options_;
  int file_ = -1;
  int64_t bytes_ = 0;               // of the complete lines in the file
  bool resumed_validated_ = false;  // it has a validation of the resumed step
  int64_t lacking_ = 0;             // lines that are left out since one was last written
  std::optional<ProgressBar> bar_;
  StepTimes times_;
};

}  // namespace dstrain
