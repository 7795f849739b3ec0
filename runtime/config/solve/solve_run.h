// What a run trains and for how long: model, data, recompute, asynchronous I/O, and the numbers of the section dstrain.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/keys/facts.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Fills these parts of `job`. With `need_data` a missing data path is an error.
void solve_run(Job& job, Values& values, Diagnostics& diagnostics, const Facts& facts,
               bool need_data);

}  // namespace dstrain
