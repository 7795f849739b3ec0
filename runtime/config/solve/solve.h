// From a merged configuration to a Job: verdicts on all keys, then the values of the Job with their
// origins. Whatever is wrong becomes a verdict; nothing is thrown for a key.
#pragma once

#include <string>

#include "runtime/config/config_request.h"
#include "runtime/config/loaded_config.h"
#include "runtime/config/read/merge.h"

namespace dstrain {

// Returns the Job, the verdicts, the settings and the warnings of `merged`. The Job is complete if no
// verdict is an error and `request.ranks` is given. Throws UserError for options of the command line
// alone (number of ranks, device, output directory).
LoadedConfig solve(const Merged& merged, const ConfigRequest& request);

// Returns a line for each verdict that stops the run, place, key and message, and the way on in a last line, which is
// indented as it is no error.
std::string error_text(const LoadedConfig& loaded);

}  // namespace dstrain
