#include "launcher/export/model_folder.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "runtime/config/config_request.h"
#include "runtime/config/family/family.h"
#include "runtime/config/read/model_source.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/storage/checkpoint/checkpoint_places.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "runtime/storage/weights/weight_files.h"
#include "runtime/storage/weights/weights_writer.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

bool is_in(const std::string& folder, std::string_view name) {
  std::error_code none;
  return fs::exists(fs::path(folder) / name, none);
}

}  // namespace

void check_not_source(const std::string& output, const std::string& source, std::string_view made) {
  std::error_code error;
  if (source.empty() || !fs::equivalent(output, source, error) || error) return;
  fail_user(
      "--output {}: what is {} comes from this folder, whose files it would replace: name another "
      "one",
      printable(output), made);
}

void check_model_folder(const std::string& output, bool overwrite, ModelFiles written) {
  std::error_code none;
  const bool exists = fs::exists(output, none);
  if (exists && !fs::is_directory(output, none))
    fail_user("--output {}: expected a folder, and a file has its name", printable(output));
  const bool is_gguf = written == ModelFiles::gguf;
  if (!exists && (output.ends_with(".safetensors") || output.ends_with(".gguf")))
    fail_user("--output {}: expected a folder, in which the file is {}", printable(output),
              is_gguf ? kGgufName : kWeightsName);
  for (const std::string_view name : {kResolvedConfig, kManifestName})
    if (is_in(output, name))
      fail_user("--output {}: the folder is that of a run or of a checkpoint: name another one",
                printable(output));
  constexpr std::array<std::string_view, 6> models{
      kWeightsName, kIndexName, kConfigJson, kAdapterConfig, kAdapterWeights, "pytorch_model.bin"};
  constexpr std::array<std::string_view, 1> files{kGgufName};
  for (const std::string_view name : is_gguf ? std::span<const std::string_view>(files)
                                             : std::span<const std::string_view>(models))
    if (!overwrite && is_in(output, name))
      fail_user(
          "--output {}: the folder has a model already ({}): --overwrite replaces it, or name "
          "another folder",
          printable(output), name);
}

void remove_model(const std::string& folder) {
  remove_file(fmt::format("{}/{}", folder, kConfigJson));
  sync_directory(folder);
  remove_adapters(folder);
  remove_weights(folder);
  sync_directory(folder);
}

NewFolder::NewFolder(std::string path) : path_(std::move(path)) {
  std::error_code none;
  fresh_ = !fs::exists(path_, none);
  make_directory(path_);
}

NewFolder::~NewFolder() {
  std::error_code none;
  if (fresh_) fs::remove(path_, none);
}

}  // namespace dstrain
