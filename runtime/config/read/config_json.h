// config.json: how transformers describes a model, as a run writes it beside the weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/config/read/merge.h"

namespace dstrain {

// Returns the text of config.json for the model of `job`: the one that the model comes from, byte for byte unless --set,
// --ignore or dstrain.save_dtype change what it says, or it has what transformers do not read; else one with all keys of the
// family. Empty if the family is not one of transformers'.
std::string config_json(const Merged& merged, const Job& job);

// Returns a config.json with all keys of one of transformers' models, the dtype of its files, and null for `unset`.
std::string config_json_of(const ModelConfig& model, DType dtype,
                           const std::vector<std::string_view>& unset = {});

// Returns the text of a config.json whose files have another dtype; byte for byte the same where it says that already.
// Throws UserError, which names `path`, if the text is no JSON object.
std::string with_dtype_of_files(const std::string& text, DType dtype, const std::string& path);

}  // namespace dstrain
