// What a run trains and for how long: model, data, recompute, asynchronous I/O, and the numbers of the section dstrain.
#pragma once

#include "runtime/config/config_request.h"
#include "runtime/config/job.h"
#include "runtime/config/keys/table/facts.h"
#include "runtime/config/loaded_config.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Fills these parts of `job`.
void solve_run(Job& job, Values& values, Diagnostics& diagnostics, const Facts& facts,
               const ConfigRequest& request);

}  // namespace dstrain
