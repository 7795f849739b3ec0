// What does not fit between a file and a run, as one error shows it.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// The first 5 of `problems`, a line each, indented by two; a last line says how many more there are.
std::string listed(const std::vector<std::string>& problems);

}  // namespace dstrain
