// The way on: the options of the command line with which a run starts although verdicts stop it.
#pragma once

#include "runtime/config/config_request.h"
#include "runtime/config/loaded_config.h"

namespace dstrain {

// Sets LoadedConfig::way_on, and Verdict::way_on of each verdict that stops the run and that an option answers. The options
// are tried: with all of them together `request` has no error, or only those that LoadedConfig::way_on names.
// `loaded` must be the result of loading `request`, without ways on.
void find_way_on(const ConfigRequest& request, LoadedConfig& loaded);

}  // namespace dstrain
