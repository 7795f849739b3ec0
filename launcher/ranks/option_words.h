// The words of a command line that a process passes on to others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// Returns `words` without the options `names` ("--resume") and their values, given as one word or as two. Each of the
// options takes a value.
std::vector<std::string> without_options(const std::vector<std::string>& words,
                                         const std::vector<std::string_view>& names);

}  // namespace dstrain
