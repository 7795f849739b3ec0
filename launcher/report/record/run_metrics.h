// RunMetrics: what metrics.jsonl says of a run, read once from its beginning to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/record/series.h"

namespace dstrain::report {

// The values of one name.
struct Metric {
  std::string name;  // "loss", "val_loss", "codec_error/weights"
  Series values;
  std::vector<Point> smooth;  // their course (Smoother)
};

struct RunMetrics {
  std::vector<Metric> metrics;              // in the order in which their names appear
  int64_t first_step = 0, last_step = 0;    // with a line of their own
  int64_t steps = 0;                        // lines of steps
  int64_t skipped = 0;                      // of them: without an update
  int64_t without_loss = 0;                 // of them: whose loss is no finite number
  std::vector<int64_t> steps_without_loss;  // of each column of a picture at most one
  double seconds = 0;                       // the sum of step_ms
  double tokens = 0;                        // the sum of tokens
  Series elapsed;                           // `seconds` up to a step
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  double final_loss = kNone;  // of the last step; NaN where it is no finite number
  double step_ms = kNone, tokens_per_second = kNone, samples_per_second = kNone;  // medians
  // What was not used: lines that are no line of a run, lines of steps that a later start of the run has done again, and
  // how often it was started again; whether the last line is incomplete.
  int64_t unreadable = 0, repeated = 0, restarts = 0;
  bool torn = false;

  // Returns the values of a name that has any; else null.
  const Metric* find(std::string_view name) const;
};

// The name of tokens by the time of their step, which the lines do not have themselves.
inline constexpr std::string_view kTokensPerSecond = "tokens_per_second";

// Reads the file, which a run may be writing, for pictures of so many columns. Takes memory for the columns, and for the
// medians 24 bytes a step. A file that is missing or empty gives a RunMetrics without steps. Throws UserError if it
// cannot be read.
RunMetrics read_run_metrics(const std::string& path, size_t columns);

}  // namespace dstrain::report
