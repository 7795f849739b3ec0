// PyTorch's communication hooks (dstrain.comm_hook).
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Fills job.hook.
void solve_hook(Job& job, Values& values, const Diagnostics& diagnostics);

}  // namespace dstrain
