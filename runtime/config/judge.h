// Judging: a verdict on every key of a configuration, from its own value and the facts alone. What needs
// several keys is added later (solve/diagnostics.h).
#pragma once

#include <vector>

#include "runtime/config/keys/table/facts.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/verdict.h"

namespace dstrain {

// Returns exactly one verdict per key of the merged configuration, in its order. `facts` are those of
// its canonical form.
std::vector<Verdict> judge(const Merged& merged, const Facts& facts);

}  // namespace dstrain
