// What `dstrain import` reads: which of PyTorch's and DeepSpeed's files a path names.
#pragma once

#include <optional>
#include <string>

#include "launcher/cli/arguments.h"
#include "runtime/storage/foreign/deepspeed_state.h"
#include "runtime/storage/foreign/foreign_weights.h"

namespace dstrain {

struct ImportSource {
  ForeignWeights weights;
  std::optional<DeepSpeedState> optimizer;  // where it is asked for
  std::string folder;   // with the config.json and the tokenizer of the model; empty: none
  bool is_f32 = false;  // the weights are in f32, whatever config.json says
};

// Finds and reads what `arguments` name: not the values of tensors. Throws UserError.
ImportSource read_import_source(const ImportArguments& arguments);

}  // namespace dstrain
