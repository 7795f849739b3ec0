// The files of a checkpoint that DeepSpeed has saved.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dstrain {

struct DeepSpeedFiles {
  std::string folder;                   // that of the tag
  std::vector<std::string> models;      // *_model_states.pt: of rank 0, or of stage 3 of each rank
  std::vector<std::string> optimizers;  // *_optim_states.pt, of each rank; none at stage 0
  std::vector<std::pair<std::string, std::string>>
      parameters;  // of a universal checkpoint: names and files
};

// Returns whether a folder is that of DeepSpeed's checkpoints, with a file `latest`, or of one of them.
bool is_deepspeed_folder(const std::string& folder);

// Returns the files of a checkpoint: that of `tag` in the folder, or where it is empty the latest, or the folder itself.
// Throws UserError if there is none, if files of ranks are missing, or if ranks have parts of layers.
DeepSpeedFiles find_deepspeed_files(const std::string& folder, const std::string& tag);

}  // namespace dstrain
