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

// Copies those of the files of generation and of the tokenizer that a folder has to another one, byte for byte. Throws
// UserError, RunError.
void copy_model_files(const std::string& from, const std::string& to);

// Returns the dtype in which a run saves a tensor: that which `kept` has, else the configuration's.
DType saved_dtype(const std::string& tensor, const std::map<std::string, DType>& kept,
                  const SaveConfig& save);

// Returns the dtypes that the tensors of `model` have in the weights of a folder; none where it has no weights. Throws
// UserError.
std::map<std::string, DType> dtypes_in_directory(const std::string& directory,
                                                 const ModelConfig& model);

}  // namespace dstrain
