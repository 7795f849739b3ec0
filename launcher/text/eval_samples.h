// dstrain eval of a run whose model reads arrays.
#pragma once

#include "launcher/cli/arguments.h"
#include "launcher/input/trained_model.h"

namespace dstrain {

// Prints the loss and the metrics of the model that a run has left on the samples of --data, which are read as those of its
// validations. Returns the exit status. Throws UserError for options that are of texts, and for a model that takes several
// samples at a time alone.
int eval_samples(const EvalArguments& arguments, WrittenRun run);

}  // namespace dstrain
