// RunSummary: a run in a few numbers, which the page's first lines and `dstrain compare` show.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/record/run_record.h"

namespace dstrain::report {

// NaN: the run has not recorded it, or it is no finite number.
struct RunSummary {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  double final_loss = kNone, best_loss = kNone, best_loss_step = kNone;
  double final_validation = kNone, best_validation = kNone, best_validation_step = kNone;
  double tokens_per_second = kNone, samples_per_second = kNone,
         step_ms = kNone;                           // medians of steps
  double seconds = kNone;                           // the sum of the steps' times
  double mfu = kNone;                               // the mean, where lines have an `mfu`
  double memory_mean = kNone, memory_peak = kNone;  // peak_bytes, over the steps
  double host_peak = kNone, disk_peak = kNone;      // host_bytes, disk_bytes
  double comm_mean = kNone;                         // comm_bytes of a step
};

RunSummary summary_of(const RunRecord& run);

// A line of the tables of `dstrain compare`: a number of each run.
struct SummaryLine {
  std::string key;    // of its JSON
  std::string label;  // for a reader
  double RunSummary::*value;
  enum class Form { loss, step, rate, milliseconds, duration, percent, bytes } form;
};
const std::vector<SummaryLine>& summary_lines();

// Returns a number of a summary for a reader, "–" for NaN.
std::string summary_text(double value, SummaryLine::Form form);

}  // namespace dstrain::report
