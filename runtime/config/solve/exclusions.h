// What does not go together: a table of pairs of settings.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Reports each pair of the table that a solved job has, as an error of the key that is easier to do without.
void judge_exclusions(const Job& job, Values& values, Diagnostics& diagnostics);

}  // namespace dstrain
