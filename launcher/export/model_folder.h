// The folder that a command writes a model to.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// Throws UserError if `output` is the folder `source`, which the model comes from. `made`: "exported".
void check_not_source(const std::string& output, const std::string& source, std::string_view made);

// The files that a model is in.
enum class ModelFiles {
  safetensors,  // and what is beside them
  gguf          // kGgufName alone
};

inline constexpr std::string_view kGgufName = "model.gguf";

// Throws UserError if `output` is a file, the folder of a run or of a checkpoint, or without `overwrite` one that has a model
// in such files.
void check_model_folder(const std::string& output, bool overwrite,
                        ModelFiles written = ModelFiles::safetensors);

// Removes the model that a folder has, its configuration first: no reader takes a folder without one, so that none takes old
// weights beside a new configuration, whenever the command ends. Throws RunError.
void remove_model(const std::string& folder);

// Makes a folder, and removes it again if it stays empty.
class NewFolder {
 public:
  explicit NewFolder(std::string path);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

 private:
  std::string path_;
  bool fresh_ = false;
};

}  // namespace dstrain
