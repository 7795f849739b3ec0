#include "runtime/engine/files/base_file.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {

std::string base_file(const Job& job, const std::string& run) {
  if (!job.base_weights)
    fail_user(
        "{}: the run has adapters alone and was resumed, and nothing says which weights it began "
        "with: its checkpoints have them (checkpoints/step_N in its folder)",
        run);
  const std::string& base = *job.base_weights;
  std::error_code none;
  if (base.empty()) return "";
  if (!std::filesystem::exists(base, none))
    fail_user(
        "{}: the run has adapters alone, for the weights in {}, which is not there: bring it back; "
        "the run's checkpoints have these weights, too",
        run, base);
  if (!std::filesystem::is_directory(base, none)) return base;
  return directory_weights(base, "dstrain.lora: the model that the run began with: " + base);
}

}  // namespace dstrain
