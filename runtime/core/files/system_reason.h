// Why a call of the system failed, as text.
#pragma once

#include <string>

namespace dstrain {

// Returns the system's text for `error` (an errno), and for a limit of the user how it is looked at and raised:
// "Too many open files (see `ulimit -n`)".
std::string system_reason(int error);

}  // namespace dstrain
