// The learning-rate schedule: section scheduler.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/keys/table/facts.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Fills job.schedule, and reports what it overrules and where it would leave the range of a key within the run's steps.
// The caller must have set `job.optimizer` and `job.steps`.
void solve_schedule(Job& job, Values& values, Diagnostics& diagnostics, const Facts& facts);

}  // namespace dstrain
