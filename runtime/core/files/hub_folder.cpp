#include "runtime/core/files/hub_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelPrefix = "models--";
constexpr const char* kSnapshots = "snapshots";

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

// Returns the folders in a folder whose names begin with `prefix`, in order.
std::vector<std::string> folders_in(const fs::path& folder, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (is_folder(at->path()) && at->path().filename().string().starts_with(prefix))
      names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Returns the snapshot that the cache's main revision is, else the last of all; empty: there is none.
std::string snapshot_of(const fs::path& model) {
  const std::vector<std::string> all = folders_in(model / kSnapshots, "");
  std::ifstream main(model / "refs" / "main");
  std::string revision;
  main >> revision;
  if (std::ranges::find(all, revision) != all.end()) return revision;
  return all.empty() ? "" : all.back();
}

// Returns "org/name" for "models--org--name".
std::string model_called(std::string_view name) {
  name.remove_prefix(kModelPrefix.size());
  const size_t dashes = name.find("--");
  if (dashes == name.npos) return std::string(name);
  return fmt::format("{}/{}", name.substr(0, dashes), name.substr(dashes + 2));
}

std::string advice_of_model(const fs::path& folder, const std::string& name) {
  if (const std::string revision = snapshot_of(folder); !revision.empty())
    return fmt::format("it is a folder of Hugging Face's cache: name its snapshot, {}",
                       (folder / kSnapshots / revision).string());
  return fmt::format(
      "it is a folder of Hugging Face's cache without a snapshot of the model's files: download "
      "them "
      "again, as `hf download {}` does",
      model_called(name));
}

}  // namespace

std::string hub_folder_advice(const std::string& folder) {
  const fs::path path =
      fs::path(folder).has_filename() ? fs::path(folder) : fs::path(folder).parent_path();
  std::error_code none;
  const fs::path whole = fs::absolute(path, none);
  const std::string name = whole.filename().string();
  if (name.starts_with(kModelPrefix)) return advice_of_model(path, name);
  const std::string above = whole.parent_path().filename().string();
  if (name == kSnapshots && above.starts_with(kModelPrefix))
    return advice_of_model(whole.parent_path(), above);
  for (const std::string& model : folders_in(path, kModelPrefix))
    if (const std::string revision = snapshot_of(path / model); !revision.empty())
      return fmt::format("it is Hugging Face's cache: name a snapshot in it, such as {}",
                         (path / model / kSnapshots / revision).string());
  return "";
}

}  // namespace dstrain
