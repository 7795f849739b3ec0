// Section dstrain.objective: what a run learns.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Sets job.objective. job.model must be there.
void solve_objective(Job& job, Values& values, Diagnostics& diagnostics);
// Reports which other settings of the job have no meaning for its objective.
void check_objective(const Job& job, const Values& values, Diagnostics& diagnostics);

}  // namespace dstrain
