// The entry to the configuration: load_config turns a DeepSpeed file and the command line into a checked
// Job. The code above works with the Job and never reads JSON or checks a value again.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/config_request.h"
#include "runtime/config/loaded_config.h"

namespace dstrain {

// Returns the job that `request` asks for. Throws one UserError with every error of the configuration, a
// line each ("ds_config.json:12:5: zero_optimization.stage: ..."), and in the last line the way on.
LoadedConfig load_config(const ConfigRequest& request);

// Returns a job of one rank with the model of a folder of transformers' files, and defaults. `ignored`: keys, as those of a
// request. Throws UserError if there is no such model.
Job job_of_model_directory(const std::string& directory, const std::vector<std::string>& ignored,
                           const ModelRegistry& models);

// Returns the verdicts for `dstrain check`. Every error inside the file becomes a verdict, a syntax error
// too. Throws UserError if the file cannot be read or an option of the request is wrong.
LoadedConfig check_config(const ConfigRequest& request);

}  // namespace dstrain
