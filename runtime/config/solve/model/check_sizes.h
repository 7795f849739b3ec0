// Upper limits: models, batches and plans that are too large to be counted or planned.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Reports an error for each size of `job` that is beyond its limit, on a key of `values` that the size follows from.
// `job` must be complete otherwise.
void check_sizes(const Job& job, const Values& values, Diagnostics& diagnostics);

}  // namespace dstrain
