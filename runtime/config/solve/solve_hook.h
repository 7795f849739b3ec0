// PyTorch's communication hooks (dstrain.comm_hook).
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Fills job.hook, and reports what does not go with it. `job` must have its stage and its types.
void solve_hook(Job& job, Values& values, Diagnostics& diagnostics);

}  // namespace dstrain
