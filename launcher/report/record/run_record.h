// RunRecord: all that a report says of a run, read from its output directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/record/run_config.h"
#include "launcher/report/record/run_metrics.h"
#include "launcher/report/record/trace_times.h"

namespace dstrain::report {

struct RunRecord {
  std::string directory;  // as it was named, without checkpoints/...
  std::string name;       // what tells it from the other runs, by its directory
  RunMetrics metrics;
  RunConfig config;
  std::optional<TraceTimes> trace;
  bool is_running = false;  // a process uses the directory
  int64_t asked_steps = 0;  // of the configuration; 0: not known
  std::string
      written;  // when metrics.jsonl was last written, "2026-01-31 23:59:59 UTC"; empty: there is none
  std::vector<std::string> notes;  // what could not be read, in sentences

  // Returns "done", "in progress", "ended early" or "no step yet".
  std::string state() const;
  // Returns "MODEL, bf16, ZeRO stage 3, 2 ranks, batch 32": what the configuration says first; empty without one.
  std::string description() const;
};

// Returns whether a process uses the output directory, as far as its lock can be looked at.
bool is_used_by_a_run(const std::string& directory);

// Returns the columns for pictures of so many runs, with which a page of runs of any length stays small.
size_t columns_for(size_t runs);

// Reads runs for pictures of so many columns. `runs`: output directories, or their checkpoints. Throws UserError if one is
// no directory of a run.
std::vector<RunRecord> read_runs(const std::vector<std::string>& runs, size_t columns);

}  // namespace dstrain::report
