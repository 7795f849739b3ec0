// OptimizerFolder: the state of an optimizer that another program has saved, as `dstrain import` writes it (docs/formats.md): a
// file of safetensors for each thing that is kept of a parameter, and how far the run has come.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/config/family/model_config.h"
#include "runtime/config/family/weight_map.h"

namespace dstrain {

inline constexpr std::string_view kOptimizerFolder = "optimizer", kProgressFile = "progress.json";

struct ImportedProgress {
  int64_t steps = 0, skipped = 0;  // skipped: steps without an update
  int64_t samples = 0;             // that the steps have taken
};

// Returns the text of the file of progress.
std::string progress_json(const ImportedProgress& progress);

// Reads how far the run of a folder has come. Throws UserError if it is no such folder.
ImportedProgress read_progress(const std::string& folder);

// Removes the files of such a folder, that of progress first, and the folder where nothing else is in it. Throws RunError.
void remove_optimizer_folder(const std::string& folder);

// Returns the file of a slot of dstrain's optimizers in a folder. Throws UserError if it is not there, or if other programs do
// not keep what the slot has.
std::string file_of_slot(const std::string& folder, std::string_view slot);

// Returns the names that its files have of the model's tensors: none of those that weights may lack may be missing here.
ForeignNames names_of_state(const ModelConfig& model);

}  // namespace dstrain
