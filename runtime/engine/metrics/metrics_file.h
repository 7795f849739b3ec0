// MetricsFile: metrics.jsonl. A line of the file is written with one call, so it is complete or absent after a
// crash. Memory does not grow with the number of steps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/engine/metrics/metrics.h"

namespace dstrain {

// Return one line of metrics.jsonl with its line break. Numbers have their shortest round-trip form;
// non-finite numbers are null.
std::string to_json(const StepMetrics& metrics);
std::string to_json(const ValidationMetrics& metrics);

// Appends a line for each step and each validation. It owns the open file.
class MetricsFile : public MetricsSink {
 public:
  // Opens metrics.jsonl at `path`, whose directory must exist. `resumed_step`: the steps that were done before this
  // run, on resume. The file keeps its lines up to this step; later lines and an incomplete last line are removed. 0:
  // the file is replaced. Throws RunError if it cannot be written.
  explicit MetricsFile(std::string path, int64_t resumed_step = 0);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile() override;

  // Append a line. One that cannot be written, for example because the disk is full, is left out: a warning names the
  // file and the reason, and another one says when lines are written again. A validation of the resumed step that the
  // file has already is not repeated.
  void step(const StepMetrics& metrics) override;
  void validation(const ValidationMetrics& metrics) override;

  // Returns whether the file has a validation of the resumed step from before this run.
  bool resumed_validated() const { return resumed_validated_; }

 private:
  void append(int64_t step, std::string_view line);

  std::string path_;
  int64_t resumed_step_;
  int file_ = -1;
  int64_t bytes_ = 0;               // of the complete lines in the file
  bool resumed_validated_ = false;  // it has a validation of the resumed step
  int64_t lacking_ = 0;             // lines that are left out since one was last written
};

}  // namespace dstrain
