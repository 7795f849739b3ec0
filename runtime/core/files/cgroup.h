// The control groups of a process, whose files limit its memory and processor time (versions 1 and 2).
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

struct CgroupDirectory {
  std::filesystem::path path;
  bool version2 = false;
};

// Returns the groups of a controller ("memory", "cpu") that a process, named as in /proc, is in, innermost first. A
// container often sees paths of its host that are not mounted; its own group is then the root of the mount, which is
// always the last of the list. `root` is the root of the file system, which tests replace.
inline std::vector<CgroupDirectory> cgroup_directories(const std::filesystem::path& root,
                                                       std::string_view controller,
                                                       std::string_view process = "self") {
  std::vector<CgroupDirectory> found;
  std::ifstream in(root / "proc" / process / "cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(fmt::format(",{},", controller)) == std::string::npos)
      continue;
    const std::filesystem::path mount =
        root / "sys/fs/cgroup" / (version2 ? std::string_view() : controller);
    std::filesystem::path path = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; path = path.parent_path()) {
      found.push_back({mount / path, version2});
      if (path.empty()) break;
    }
  }
  return found;
}

}  // namespace dstrain
