#include "launcher/input/initial_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "runtime/engine/files/adapter_files.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {

std::vector<InitialFile> initial_files(const Job& job) {
  std::vector<InitialFile> files;
  if (!job.resume.empty()) return files;
  if (!job.init_weights.empty())
    for (const std::string& path : files_of_weights(job.init_weights))
      files.push_back(
          {path,
           path == job.init_weights
               ? "initial weights"
               : "initial weights in " + std::filesystem::path(path).filename().string(),
           "the weights file"});
  if (!job.adapters.init.empty())
    files.push_back({fmt::format("{}/{}", adapter_folder(job.adapters.init), kAdapterWeights),
                     "initial adapters", "the adapters' weights"});
  return files;
}

}  // namespace dstrain
