// Files in memory, by which a process hands other processes what must be neither in a command line nor in an
// environment.
#pragma once

#include <string_view>

#include "launcher/process/descriptor.h"

namespace dstrain {

// Returns a file in memory that holds `text`, to be read from its beginning. It is closed on exec, and gone with the
// last descriptor. `name`: what /proc calls it. Throws RunError if the system refuses it.
Descriptor memory_file(const char* name, std::string_view text);

}  // namespace dstrain
