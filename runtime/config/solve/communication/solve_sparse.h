// Solves the key sparse_gradients: whether the job can have it, and whether it sends fewer bytes than whole gradients.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Sets Job::sparse_gradients. The rest of the job must be solved. `ranks_known`: the job
// has the number of ranks of the run.
void solve_sparse(Job& job, Values& values, Diagnostics& diagnostics, bool ranks_known);

}  // namespace dstrain
