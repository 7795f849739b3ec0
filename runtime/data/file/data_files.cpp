#include "runtime/data/file/data_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_pattern(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos && !is_there(path);
}

// Returns the files that match, without folders.
std::vector<std::string> matching(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> files;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i)
      if (std::error_code error; !fs::is_directory(found.gl_pathv[i], error))
        files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::vector<std::string> data_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!is_pattern(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found = matching(path);
    if (found.empty())
      fail_user(
          "no file matches the pattern {} of the data: give another with --data or "
          "dstrain.data.path",
          path);
    std::ranges::move(found, std::back_inserter(files));
  }
  return files;
}

std::string first_missing(const std::vector<std::string>& paths) {
  const auto missing = std::ranges::find_if(paths, [](const std::string& path) {
    return is_pattern(path) ? matching(path).empty() : !is_there(path);
  });
  return missing == paths.end() ? "" : *missing;
}

std::string names_of_files(const std::vector<std::string>& files) {
  constexpr size_t most = 5;
  std::vector<std::string> names;
  for (const std::string& file : files) names.push_back(fs::path(file).filename().string());
  if (names.size() == 1) return names.front();
  const size_t others = names.size() - std::min(names.size(), most);
  names.resize(names.size() - others);
  return fmt::format("{} ({}{})", counted(static_cast<int64_t>(files.size()), "file"),
                     fmt::join(names, ", "), others > 0 ? fmt::format(" and {} more", others) : "");
}

}  // namespace dstrain
