// The first and the last log line of a run. Pure.
#pragma once

#include <optional>
#include <string>

#include "runtime/config/job.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// Returns the first line: number of parameters, precision, stage, ranks, batch, first step, and the expected
// time of a step if it is long. `done`: steps done before, on resume. `threads`: of a rank.
std::string first_line(const Job& job, const Plan& train, int64_t done, int threads);

// Returns how often the run sees its training samples, of which there are so many: "the run sees each of 3921
// training samples 2.04 times, in batches of 8". `first`: samples taken before the first of the `steps` to come.
std::string seen_line(const Job& job, int64_t samples, int64_t first, int64_t steps);

// Returns the bytes that a rank reserves in each space: "1.2 GB and 3.4 GB of the host's memory".
std::string memory_line(const MemoryTable& memory);

// Returns the line about the graphs of a step, `launches` launches of `graphs` graphs that have `nodes` nodes together.
std::string graph_line(int64_t graphs, int64_t nodes, int64_t launches);

// The values that the last log line of a run reports.
struct RunEnd {
  int64_t first_step = 0, steps = 0;  // steps done before this run, and by it
  bool stopped = false;               // a signal stopped the run
  bool saved = true;                  // there is a checkpoint of the last step
  int64_t skipped = 0;                // of these steps, those whose update was not applied
  double seconds = 0;
  std::optional<double> loss = {}, validation_loss = {};  // the newest
};

// Returns the last line: the last step, skipped updates, the newest losses, the output directory.
std::string last_line(const Job& job, const RunEnd& end);

}  // namespace dstrain
