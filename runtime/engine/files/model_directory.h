// The files beside the weights of one of transformers' models, which a run writes to its output directory.
#pragma once

#include <map>
#include <string>

#include "runtime/config/job.h"

namespace dstrain {

// What becomes of files of generation and of a tokenizer that a folder has and its model lacks: they are another model's,
// or in the folder of a run that goes on the user's.
enum class OtherFiles : bool { stay, removed };

// Copies the files of generation and of the tokenizer from the model's folder, if there is one, to the output directory,
// which must exist, writes the chat template that a key names, and then config.json. Removes the vocabulary of an earlier
// run there. Beside adapters alone there is no config.json where they name the model's folder: transformers open that with the adapters, but not a folder
// that has a config.json and no weights of the model. Returns the dtypes that the model's tensors have where the weights
// keep them. Throws UserError, RunError.
std::map<std::string, DType> begin_model_directory(const Job& job, const std::string& config_json,
                                                   OtherFiles others);

// Copies those of the files of generation and of the tokenizer that a folder has to another one, byte for byte. `from`
// empty: there are none. Throws UserError, RunError.
void copy_model_files(const std::string& from, const std::string& to, OtherFiles others);

// Throws UserError if copy_model_files() could not read a file of the folder.
void check_model_files(const std::string& folder);

// Returns the dtype in which a run saves a tensor: that which `kept` has, else the configuration's.
DType saved_dtype(const std::string& tensor, const std::map<std::string, DType>& kept,
                  const SaveConfig& save);

// Returns the dtypes that the tensors of `model` have in the weights of a folder; none where it has no weights. Throws
// UserError.
std::map<std::string, DType> dtypes_in_directory(const std::string& directory,
                                                 const ModelConfig& model);

}  // namespace dstrain
