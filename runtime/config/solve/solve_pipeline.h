// How the layers of the model are divided among ranks: section pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Returns the pipeline of a run on `ranks` ranks; absent: nothing that depends on their number is checked.
// `ranks_origin` names the source of `ranks` in messages.
PipelineConfig solve_pipeline(Values& values, Diagnostics& diagnostics,
                              std::optional<int64_t> ranks, const std::string& ranks_origin);

// Reports an error if the model of a complete job cannot be divided so.
void check_pipeline(const Job& job, Diagnostics& diagnostics);

}  // namespace dstrain
