// The output of `dstrain check`: the verdicts on all keys of a configuration, as text and as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/verdict.h"

namespace dstrain {

// Returns a line per key and a last line with the number of verdicts by state, and whether the file trains: with errors
// the way on (LoadedConfig::way_on), else the terms on which it does, such as "on 4 ranks once --data names a file".
std::string check_text(const std::vector<Verdict>& verdicts, std::string_view way_on = {},
                       std::string_view terms = {});

// Returns a JSON array with an object per key (docs/formats.md, check --json).
std::string check_json(const std::vector<Verdict>& verdicts);

}  // namespace dstrain
