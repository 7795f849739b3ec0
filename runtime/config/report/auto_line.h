// The line that tells what "auto" became.
#pragma once

#include <string>

#include "runtime/config/loaded_config.h"

namespace dstrain {

// Returns a line with each value that the file leaves to "auto" and that the numbers of the run depend on; empty if
// there is none. Batch sizes by default are in the line of their own (launcher/input/defaults.h).
std::string auto_line(const LoadedConfig& loaded);

}  // namespace dstrain
