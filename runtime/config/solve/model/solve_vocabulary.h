// The vocabulary of a model that comes with its weights.
#pragma once

#include "runtime/config/job.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// Sets the tokens that are added to the tokenizer's, and the rows that the weights of the job's model have of the vocabulary's tables, where the model of the folder has fewer
// ids than the job's. Reports a smaller vocabulary, and new rows that adapters would never train, as errors. The job's
// model, its fine-tuning and its first weights must be known.
void solve_vocabulary(Job& job, Values& values, const Merged& merged, Diagnostics& diagnostics);

}  // namespace dstrain
