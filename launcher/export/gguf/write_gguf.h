// Writing a GGUF file: a piece of a weight at a time, under a temporary name until it is complete.
#pragma once

#include "launcher/export/gguf/gguf_plan.h"
#include "runtime/storage/weights/copy_weights.h"

namespace dstrain {

// Writes the file of a plan and puts it in the place of an earlier one. `read` reads elements of the weights that the plan
// is of. Throws what `read` throws, UserError for values that a type does not hold, and RunError.
void write_gguf(const GgufPlan& plan, const ReadWeight& read);

// Interleaves the rows of heads: of each `head_size` rows those of the first and of the second half take turns. `values` has
// whole heads.
void interleave_heads(int64_t head_size, int64_t columns, std::vector<float>& values);

}  // namespace dstrain
