// Upper limits: models, batches and plans that are too large to be counted or planned.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"

namespace dstrain {

// Reports an error for each size of `job` that is beyond its limit. `job` must be complete otherwise.
void check_sizes(const Job& job, Diagnostics& diagnostics);

}  // namespace dstrain
