#include "runtime/config/solve/data/data_names.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace dstrain {
namespace {

bool has_npy_file(const std::string& folder) {
  std::error_code none;
  for (std::filesystem::directory_iterator at(folder, none), end; !none && at != end;
       at.increment(none))
    if (at->path().extension() == ".npy") return true;
  return false;
}

}  // namespace

bool names_arrays(const std::string& path) {
  constexpr std::string_view endings[] = {".safetensors", ".npz", ".npy"};
  return std::ranges::any_of(endings, [&path](auto end) { return path.ends_with(end); }) ||
         has_npy_file(path);
}

bool names_images(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none) && !has_npy_file(path);
}

bool are_all(const std::vector<std::string>& paths, bool (*is)(const std::string&)) {
  return !paths.empty() && std::ranges::all_of(paths, is);
}

}  // namespace dstrain
