// How the layers of the model are divided among ranks: section pipeline.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Returns the pipeline of a run.
PipelineConfig solve_pipeline(Values& values, Diagnostics& diagnostics);

// Reports an error if the model of a complete job cannot be divided so.
void check_pipeline(const Job& job, Diagnostics& diagnostics);

}  // namespace dstrain
