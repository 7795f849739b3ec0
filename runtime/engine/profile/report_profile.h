// What a run prints of its profile: the report of flops_profiler.
#pragma once

#include <optional>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/engine/metrics/phase_times.h"
#include "runtime/engine/step/trace.h"

namespace dstrain {

// Returns whether flops_profiler profiles the step (from 1): the one that follows `profile_step` others, as DeepSpeed
// counts.
bool is_profiled(const Job& job, int64_t step);

// Returns why a run whose first `steps_before` steps are done never profiles a step; nothing if it does, or is not to.
std::optional<std::string> no_profile_text(const Job& job, int64_t steps_before);

// Makes the directory of the report's file, if there is one. Throws RunError.
void make_profile_directory(const FlopsProfilerConfig& options);

// Writes the report of rank 0's step to the log or to its file. A file that cannot be written is left out with a warning.
// Collective over the ranks of the world, all of which have run the step with its trace.
void report_profile(const Job& job, const StepTrace& trace, const StepPhases& phases,
                    Communicator& comm);

}  // namespace dstrain
