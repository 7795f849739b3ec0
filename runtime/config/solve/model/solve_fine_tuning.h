// Keys dstrain.parameter_groups and dstrain.lora: what a run changes about its model.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Sets the fine-tuning of job.model, which must be there, and job.adapters.
void solve_fine_tuning(Job& job, Values& values, const Diagnostics& diagnostics);
// Reports what the optimizer cannot do of that.
void check_fine_tuning(const Job& job, Diagnostics& diagnostics);

}  // namespace dstrain
