#include "launcher/process/program_path.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {

namespace fs = std::filesystem;

std::string find_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string all = path == nullptr ? "" : path;
  for (size_t begin = 0; begin <= all.size();) {
    const size_t colon = std::min(all.find(':', begin), all.size());
    const std::string file = (fs::path(all.substr(begin, colon - begin)) / name).string();
    std::error_code none;
    if (fs::is_regular_file(file, none) && ::access(file.c_str(), X_OK) == 0) return file;
    begin = colon + 1;
  }
  return "";
}

std::vector<std::string> own_command(const std::vector<std::string>& words) {
  std::vector<std::string> all = {fs::read_symlink("/proc/self/exe").string()};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::string working_directory() {
  std::error_code problem;
  const std::string path = fs::current_path(problem).string();
  if (problem)
    fail_user("the current directory cannot be told ({}): change to one that exists",
              problem == std::errc::no_such_file_or_directory ? "it is gone" : problem.message());
  if (first_invalid_utf8(path) != std::string::npos)
    fail_user("the current directory '{}': its path is not UTF-8, as paths have to be: rename it",
              printable(path));
  return path;
}

}  // namespace dstrain
