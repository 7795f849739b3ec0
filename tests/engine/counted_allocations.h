// Counts every operator new of the process: linking the file replaces it.
#pragma once

#include <cstdint>

namespace dstrain {

// Returns how often memory was allocated since the process began.
int64_t counted_allocations();

}  // namespace dstrain
