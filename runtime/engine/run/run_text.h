// The first log lines of a run. Pure.
#pragma once

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

// Returns which of the samples for validation it leaves out, as they fill no micro-batch: "validation takes 48 of the 50
// samples, ...".
std::string left_out_line(int64_t taken, int64_t samples, int64_t micro_batch);

// Returns why a run ends after `step` of `steps` steps: "no better validation loss in 3 validations: the run ends after step
// 60 of 100".
std::string patience_line(const BestModelConfig& best, int64_t step, int64_t steps);

// Returns the bytes that a rank reserves in each space: "1.2 GB and 3.4 GB of the host's memory".
std::string memory_line(const MemoryTable& memory);

// Returns the line about the graphs of a step, `launches` launches of `graphs` graphs that have `nodes` nodes together.
std::string graph_line(int64_t graphs, int64_t nodes, int64_t launches);

}  // namespace dstrain
