#include "runtime/storage/foreign/optimizer_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestProgress = 4096, kFormat = 1;

// Slots of dstrain's optimizers, and PyTorch's names of what they have.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNames = {
    {{"exp_avg", "exp_avg"},
     {"exp_avg_sq", "exp_avg_sq"},
     {"sum", "sum"},
     {"momentum", "momentum_buffer"}}};

int64_t count_in(const nlohmann::json& json, const char* name, const std::string& path) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_unsigned())
    fail_user("{}: expected the number \"{}\", as `dstrain import` writes it", path, name);
  return found->get<int64_t>();
}

}  // namespace

std::string progress_json(const ImportedProgress& progress) {
  return nlohmann::ordered_json{{"format", kFormat},
                                {"steps", progress.steps},
                                {"skipped_steps", progress.skipped},
                                {"samples", progress.samples}}
             .dump(2) +
         "\n";
}

ImportedProgress read_progress(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kProgressFile);
  const std::string text =
      read_input_file(path, "the progress of an optimizer's state", kLargestProgress);
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) fail_user("{}: it is not JSON of an object", path);
  if (count_in(json, "format", path) != kFormat)
    fail_user("{}: a later version of dstrain has written it", path);
  ImportedProgress progress{.steps = count_in(json, "steps", path),
                            .skipped = count_in(json, "skipped_steps", path),
                            .samples = count_in(json, "samples", path)};
  if (progress.skipped > progress.steps)
    fail_user("{}: {} of {} steps are skipped", path, progress.skipped, progress.steps);
  return progress;
}

void remove_optimizer_folder(const std::string& folder) {
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none)) return;
  remove_file(fmt::format("{}/{}", folder, kProgressFile));
  for (const auto& [slot, name] : kNames)
    remove_file(fmt::format("{}/{}.safetensors", folder, name));
  std::filesystem::remove(folder, none);
}

std::string file_of_slot(const std::string& folder, std::string_view slot) {
  const auto name = std::ranges::find(kNames, slot, [](const auto& pair) { return pair.first; });
  if (name == kNames.end())
    fail_user(
        "dstrain.optimizer_state: {} has states of PyTorch's optimizers, and none is the state "
        "\"{}\" of this one: use AdamW, Lion, Adagrad or SGD",
        folder, slot);
  const std::string path = fmt::format("{}/{}.safetensors", folder, name->second);
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    fail_user(
        "dstrain.optimizer_state: there is no {} in {}: another optimizer has saved it, use that "
        "one",
        path.substr(folder.size() + 1), folder);
  return path;
}

ForeignNames names_of_state(const ModelConfig& model) {
  ForeignNames names = foreign_names_of(model);
  names.fresh.clear();
  return names;
}

}  // namespace dstrain
