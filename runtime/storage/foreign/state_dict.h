// Reading the state of a module that torch.save has written.
#pragma once

#include <string>

#include "runtime/storage/foreign/foreign_weights.h"

namespace dstrain {

// Returns the weights of a file: a dict of tensors by name, or one that has such a dict under "state_dict", "model_state_dict",
// "model" or "module"; under `key` if that is not empty. Throws UserError.
ForeignWeights weights_of_file(const std::string& path, const std::string& key);

// Returns the weights of the files that pytorch_model.bin.index.json lists. Throws UserError.
ForeignWeights weights_of_index(const std::string& path);

}  // namespace dstrain
