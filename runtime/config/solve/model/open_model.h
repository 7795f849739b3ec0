// The model of a file that the values of its family's keys name.
#pragma once

#include "runtime/config/config_request.h"
#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Takes the model of the file in place of its family's, where values of keys do not make the model themselves, and refuses what
// such a model does not have. The job's batch and ranks must be known. Throws UserError if there is no such model.
void open_model(Job& job, Values& values, Diagnostics& diagnostics, const ConfigRequest& request);

}  // namespace dstrain
