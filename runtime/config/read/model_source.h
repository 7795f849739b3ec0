// The model that --model or a text as dstrain.model names: a type, a file of a model section, or a folder with config.json.
#pragma once

#include <string>
#include <string_view>

#include "runtime/config/json/tree.h"

namespace dstrain {

class ModelRegistry;

inline constexpr std::string_view kConfigJson = "config.json";

// A model by its name.
struct ModelSource {
  Node section;           // dstrain.model
  std::string file = {};  // that has it; empty: none
  std::string text = {};  // of the file
  std::string directory =
      {};  // the folder of transformers' files, without a slash at its end; empty: none
  std::string folder_of_weights =
      {};  // the folder of a file that is its config.json, if it has weights, which are not read; empty: none
  bool has_namesake =
      false;  // the name is a type's, and there is a folder of transformers' files with this name
};

// Reads the model that `name` names. `option` begins messages ("--model "), `place` is where the name was written. Throws
// UserError if there is no such model.
ModelSource read_model(const std::string& name, std::string_view option, SourcePlace place,
                       const ModelRegistry& models);

}  // namespace dstrain
