// TraceTimes: where the time of some steps of a run went, from a trace that the run has written (docs/formats.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dstrain::report {

// The time of a rank in a step, in milliseconds: the mean over the traced steps. `compute`, `exposed_comm` and `other` add
// up to the step.
struct RankTime {
  double compute = 0, exposed_comm = 0, other = 0;
  double waiting = 0;  // for other ranks
};

struct TraceTimes {
  std::string file;
  int64_t steps =
      0;  // that the means are of: the first one, which also warms up, is left out where there are several
  std::map<int64_t, RankTime> ranks;
  // Milliseconds of a step by queue ("compute", "comm") and class of instruction ("linear"), the mean over the ranks.
  // Queues work beside each other, so that their times may add up to more than the step.
  std::map<std::pair<std::string, std::string>, double> classes;
};

// Reads a trace without keeping it. Returns nothing if the file is no trace, or has no step.
std::optional<TraceTimes> read_trace_times(const std::string& path);

}  // namespace dstrain::report
