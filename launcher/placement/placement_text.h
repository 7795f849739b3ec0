// A placement as text: which ranks run on which slots of which host.
#pragma once

#include <string>

#include "launcher/placement/resources.h"

namespace dstrain {

// Returns a table with a line for each host, and the sums.
std::string placement_text(const Placement& placement);

// Returns a JSON list: [{"host": "node1", "slots": [0, 2], "ranks": [0, 1]}, ...]
std::string placement_json(const Placement& placement);

}  // namespace dstrain
