// The models and kernels of this program, as plans and runs take them.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

const Implementations& implementations();

// Returns the inputs of plans of `job`, whose device is settled, with the threads of a rank on a host that
// runs `ranks_on_host` ranks (0: all ranks of the job). Fewer ranks have more threads each, and so larger
// workspaces.
PlanInputs plan_inputs(const Job& job, int ranks_on_host = 0);

}  // namespace dstrain
