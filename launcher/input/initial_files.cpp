#include "launcher/input/initial_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "runtime/engine/files/adapter_files.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/storage/foreign/optimizer_folder.h"
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
  if (!job.optimizer_state.empty()) {
    read_progress(job.optimizer_state);
    files.push_back({fmt::format("{}/{}", job.optimizer_state, kProgressFile),
                     "progress of the initial optimizer state", "the optimizer's progress"});
    for (const SlotRule& slot : state_slots(job.optimizer))
      files.push_back({file_of_slot(job.optimizer_state, slot.name), "initial optimizer state",
                       "the optimizer's state"});
  }
  return files;
}

}  // namespace dstrain
