// The text of a placement: which ranks run on which slots of which host. Stands on resources.h.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/resources.h"

namespace dstrain {

// A line for each host under headings, then their sum.
std::string placement_text(const Placement& placement);

// [{"host": "node1", "slots": [0, 2], "ranks": [0, 1]}, ...]
std::string placement_json(const Placement& placement);

// "0-3,6": ascending numbers, runs of them joined.
std::string ranges_text(const std::vector<int>& numbers);

}  // namespace dstrain
