#include "runtime/config/read/run_folder.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Returns a path without "." and "..", and without a '/' at its end.
fs::path tidy_path(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

bool is_step_name(const fs::path& path) {
  constexpr std::string_view prefix = "step_";
  const std::string name = path.filename().string();
  return name.starts_with(prefix) && name.size() > prefix.size() && name[prefix.size()] >= '0' &&
         name[prefix.size()] <= '9';
}

// Returns whether `path` is an output directory, which may have the name of a checkpoint or of their folder.
bool holds_checkpoints(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path / "checkpoints", none) && !fs::exists(path / "manifest.json", none);
}

// Returns DIR for DIR/checkpoints and DIR/checkpoints/step_4; nothing for another path.
std::optional<fs::path> above_checkpoints(const fs::path& path) {
  const fs::path folder = is_step_name(path) ? path.parent_path() : path;
  if (folder.filename() != "checkpoints" || holds_checkpoints(path)) return std::nullopt;
  return folder.parent_path();
}

// Returns DIR for DIR/step_4, a checkpoint that was moved; nothing for another path.
std::optional<fs::path> above_step(const fs::path& path) {
  if (!is_step_name(path) || holds_checkpoints(path)) return std::nullopt;
  return path.parent_path();
}

}  // namespace

std::string run_folder_of(const std::string& resume) {
  std::error_code none;
  const fs::path canonical = fs::weakly_canonical(resume, none);
  fs::path named = tidy_path(fs::absolute(resume));
  // ".." after a link leads elsewhere than the text says.
  if (fs::exists(resume, none) && !fs::equivalent(named, resume, none)) named = canonical;
  for (const auto& above : {above_checkpoints, above_step})
    for (const fs::path& path : {named, canonical})
      if (const std::optional<fs::path> folder = above(path)) {
        const bool relative = path == named && fs::path(resume).is_relative();
        return (relative ? folder->lexically_proximate(fs::current_path()) : *folder).string();
      }
  return tidy_path(resume).string();
}

}  // namespace dstrain
