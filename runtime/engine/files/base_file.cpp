#include "runtime/engine/files/base_file.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "runtime/config/family/family.h"
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

ForeignNames names_in_base(const Job& job, const std::string& base) {
  ForeignNames names = foreign_names_of(job.model);
  const std::optional<HuggingFace>& hub = job.model.family().hugging_face;
  const std::optional<LoraConfig>& lora = job.model.fine_tuning().lora;
  if (names.grown.rows > 0 || !hub || !lora || !lora->saves(hub->table)) return names;
  const WeightFiles files(base, names);
  const std::optional<WeightFiles::Found> table = files.find(std::string(hub->table));
  if (!table || table->tensor->shape.size() != 2) return names;
  if (const int64_t rows = table->tensor->shape[0]; rows < job.model.vocabulary())
    names.grown = {{std::string(hub->table), std::string(hub->head)}, rows};
  return names;
}

}  // namespace dstrain
