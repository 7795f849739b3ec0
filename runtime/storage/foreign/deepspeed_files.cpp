#include "runtime/storage/foreign/deepspeed_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelEnd = "_model_states.pt", kOptimizerEnd = "_optim_states.pt",
                           kParameters = "zero", kMaster = "fp32.pt";
constexpr int64_t kLargestTag = 4096;

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

// Returns the names in a folder, sorted.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) fail_user("{}: {}", folder.string(), error.message());
  std::ranges::sort(names);
  return names;
}

bool has_checkpoint(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) return false;
  return fs::is_directory(folder / kParameters, none) ||
         std::ranges::any_of(names_in(folder),
                             [](const std::string& name) { return name.ends_with(kModelEnd); });
}

// Returns the tag that one of DeepSpeed's files of a folder names; nothing if it is not there.
std::optional<std::string> tag_in(const fs::path& file) {
  if (!is_there(file)) return std::nullopt;
  std::string tag =
      read_input_file(file.string(), "the name of DeepSpeed's latest checkpoint", kLargestTag);
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' '))
    tag.pop_back();
  return tag;
}

// Returns the number behind `before` in a name; nothing if there is none.
std::optional<int> number_behind(std::string_view name, std::string_view before) {
  const size_t at = name.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  int number = 0;
  const char* const begin = name.data() + at + before.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

// Files of ranks by their numbers.
using RankFiles = std::map<int, std::string>;

// Returns the files of all ranks in order. Throws UserError if one is missing.
std::vector<std::string> in_order(const RankFiles& files, const fs::path& folder,
                                  std::string_view what) {
  std::vector<std::string> paths;
  for (const auto& [rank, name] : files) {
    if (rank != static_cast<int>(paths.size()))
      fail_user("{}: the file of rank {} is missing (*{}): copy the files of all hosts together",
                folder.string(), paths.size(), what);
    paths.push_back((folder / name).string());
  }
  return paths;
}

// Throws UserError for files of ranks that have parts of a model.
void refuse_parts(const fs::path& folder, const std::string& name) {
  const std::optional<int> part = number_behind(name, "mp_rank_");
  const bool is_layer = name.starts_with("layer_"),
             is_expert = name.find("expert") != std::string::npos || name.starts_with("expp_rank_");
  if (!is_layer && !is_expert && part.value_or(0) == 0) return;
  fail_user(
      "{}: it has {}, a part of a model that ranks have divided ({}), which dstrain does not join: "
      "import what DeepSpeed's ds_to_universal.py makes of it",
      folder.string(), shown_text(name),
      is_layer    ? "a pipeline"
      : is_expert ? "experts"
                  : "tensor parallelism");
}

void find_rank_files(DeepSpeedFiles& files) {
  const fs::path folder = files.folder;
  RankFiles models, optimizers;
  for (const std::string& name : names_in(folder)) {
    const bool is_model = name.ends_with(kModelEnd);
    if (name.starts_with("layer_") && name.ends_with(kModelEnd.substr(1)))
      refuse_parts(folder, name);  // layer_00-model_states.pt
    if (!is_model && !name.ends_with(kOptimizerEnd)) continue;
    refuse_parts(folder, name);
    const int rank = number_behind(name, "zero_pp_rank_").value_or(0);
    const auto [other, fresh] = (is_model ? models : optimizers).try_emplace(rank, name);
    if (!fresh)
      fail_user("{}: {} and {} are both of rank {}: remove what another run has left",
                folder.string(), shown_text(other->second), shown_text(name), rank);
  }
  files.models = in_order(models, folder, kModelEnd);
  files.optimizers = in_order(optimizers, folder, kOptimizerEnd);
}

void find_parameters(DeepSpeedFiles& files) {
  const fs::path zero = fs::path(files.folder) / kParameters;
  for (const std::string& name : names_in(zero))
    if (is_there(zero / name / kMaster))
      files.parameters.emplace_back(name, (zero / name / kMaster).string());
  if (files.parameters.empty())
    fail_user("{}: expected a folder for each parameter, with {}", zero.string(), kMaster);
  const fs::path model = fs::path(files.folder) / fmt::format("mp_rank_00{}", kModelEnd);
  if (is_there(model)) files.models.push_back(model.string());
}

}  // namespace

bool is_deepspeed_folder(const std::string& folder) {
  return is_there(fs::path(folder) / "latest") || is_there(fs::path(folder) / "latest_universal") ||
         has_checkpoint(folder);
}

DeepSpeedFiles find_deepspeed_files(const std::string& folder, const std::string& tag) {
  DeepSpeedFiles files;
  std::string wanted = tag;
  const char* named = "--tag";
  if (wanted.empty())
    for (const char* const file : {"latest", "latest_universal"})
      if (const std::optional<std::string> latest = tag_in(fs::path(folder) / file);
          wanted.empty() && latest) {
        wanted = *latest;
        named = file;
      }
  if (!wanted.empty() && (wanted.find('/') != std::string::npos || wanted == "." ||
                          wanted == ".." || wanted.find('\0') != std::string::npos))
    fail_user("{}: {} names \"{}\", expected the name of a folder there", folder, named,
              shown_text(wanted));
  files.folder = wanted.empty() ? folder : (fs::path(folder) / wanted).string();
  if (!has_checkpoint(files.folder))
    fail_user("{}: {}{}expected a folder with files *{}, or of a universal checkpoint",
              files.folder, wanted.empty() ? "" : named, wanted.empty() ? "" : " names it; ",
              kModelEnd);
  if (is_there(fs::path(files.folder) / kParameters))
    find_parameters(files);
  else
    find_rank_files(files);
  return files;
}

}  // namespace dstrain
