// The kernels of this program, which plans and runs are given.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

// Returns the kernels.
const Implementations& implementations();

// Returns the inputs of plans of `job`, whose device must be chosen, for a rank on a host with `ranks_on_host` ranks
// (0: all ranks of the job). With fewer ranks on a host each has more threads, and so larger workspaces, unless
// OMP_NUM_THREADS says how many.
PlanInputs plan_inputs(const Job& job, int ranks_on_host = 0);

}  // namespace dstrain
