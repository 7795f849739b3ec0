// Mismatches between a file and a run, as the text of one error.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// Returns the first 5 of `mismatches`, a line each, indented by two; a last line gives the number of the
// others.
std::string listed(const std::vector<std::string>& mismatches);

}  // namespace dstrain
