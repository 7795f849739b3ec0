// The data of a run: its files, how they are read, and how samples are made of them.
#pragma once

#include "runtime/config/config_request.h"
#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Fills job.data and the tokens of a sample of job.model, whose keys are set.
void solve_data(Job& job, Values& values, Diagnostics& diagnostics, const ConfigRequest& request);

}  // namespace dstrain
