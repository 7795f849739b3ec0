// Copies: how many micro-batches need a transient buffer at the same time. The order of a plan decides: a value
// that one phase writes and another one reads exists once for every micro-batch that is between the two.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"

namespace dstrain {

// The copies of a buffer in memory: copy i belongs to micro-batches i, i + count, i + 2 * count, ...
struct Copies {
  int64_t count = 1;
  // Nothing of another micro-batch runs between the buffer's first and last use, so its memory is free outside
  // of its positions in the instruction list.
  bool by_position = true;
};

// Returns the copies of every buffer of the plan; those of views are their parents'.
std::vector<Copies> copies_of(const Plan& plan);

}  // namespace dstrain
