#include "launcher/input/compared_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "launcher/input/initial_files.h"
#include "runtime/config/family/family.h"
#include "runtime/config/read/model_source.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/data/chat/chat_template.h"
#include "runtime/storage/file_checksum.h"

namespace dstrain {

ComparedFiles compared_files(const RunInput& input, const std::string& config) {
  const Job& job = input.job();
  ComparedFiles files;
  const auto add = [&files](const std::string& path, const char* what, bool initial = false) {
    files.push_back({path, file_checksum(path, what), initial});
  };
  if (!config.empty()) add(config, "the configuration");
  for (const std::string& path : input.texts.files) add(path, "the text");
  for (const Split split : {Split::train, Split::validation})
    for (const std::string& path : input.dataset->files(split).paths) add(path, "the data file");
  if (!job.model_directory.empty())
    add(fmt::format("{}/{}", job.model_directory, kConfigJson), "the model's configuration");
  if (const ModelFamily& family = job.model.family(); family.is_fixed)
    add(job.model.text(family.file_key), "the model");
  if (const std::string& file = job.data.chat_template;
      !file.empty() && built_in_template(file).empty())
    add(file, "the chat template");
  for (const InitialFile& file : initial_files(job)) add(file.path, file.what, true);
  return files;
}

void require_rereadable(const std::string& config, std::string_view why) {
  std::error_code none;
  if (names_own_descriptor(config) || !std::filesystem::is_regular_file(config, none))
    fail_user("--config {}: expected a regular file, because {}: save the configuration in one",
              config, why);
}

void require_unchanged(const ComparedFiles& begun, const ComparedFiles& now) {
  std::vector<std::string> changed;
  for (const ComparedFile& file : begun)
    if (!file.initial && std::ranges::find(now, file) == now.end()) changed.push_back(file.path);
  for (const ComparedFile& file : now)
    if (std::ranges::find(begun, file) == begun.end() &&
        std::ranges::find(changed, file.path) == changed.end())
      changed.push_back(file.path);
  if (changed.empty()) return;
  fail_user(
      "{} changed since the run began, and a restart would go on with another training: put back "
      "what the run began with, or start it with --resume, which says what follows from the change",
      changed.size() == 1 ? changed.front() + " has"
                          : fmt::format("{} have", fmt::join(changed, ", ")));
}

}  // namespace dstrain
