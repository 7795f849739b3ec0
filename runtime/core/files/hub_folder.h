// Folders of Hugging Face's cache, which users name for the folder of a model's files in them.
#pragma once

#include <string>

namespace dstrain {

// Returns what to do with a folder that is part of Hugging Face's cache, but not a snapshot, which has a model's files: "it
// is ...: name its snapshot, DIR/snapshots/REVISION". Empty for any other folder.
std::string hub_folder_advice(const std::string& folder);

}  // namespace dstrain
