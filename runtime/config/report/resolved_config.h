// resolved_config.json (docs/formats.md): every value of a run with its origin, in the output directory,
// so that `generate` and a resumed run can rebuild the Job.
#pragma once

#include <string>

#include "runtime/config/job.h"
#include "runtime/config/loaded_config.h"

namespace dstrain {

class ModelRegistry;

// Returns the text of the file. Where the device and the vocabulary size of `loaded.job` differ from the
// recorded settings, the Job's values are written: the launcher sets them after loading.
std::string resolved_config_json(const LoadedConfig& loaded);

// Returns the Job that resolved_config_json wrote. Throws UserError, which names `source`, if the text
// is not a resolved configuration.
Job job_from_resolved(const std::string& text, const ModelRegistry& models,
                      const std::string& source = "resolved_config.json");

}  // namespace dstrain
