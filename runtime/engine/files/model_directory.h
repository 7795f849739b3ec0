// The files beside the weights of one of transformers' models, which a run writes to its output directory.
#pragma once

#include <map>
#include <string>

#include "runtime/config/job.h"

namespace dstrain {

// Writes config.json to the output directory, which must exist, and copies the files of generation and of the tokenizer
// from the model's folder, if there is one. Removes the vocabulary of an earlier run there. Returns the dtypes that its
// tensors have where the weights keep them. Throws UserError, RunError.
std::map<std::string, DType> begin_model_directory(const Job& job, const std::string& config_json);

}  // namespace dstrain
