#include "runtime/storage/disk/mount.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace dstrain {

std::optional<Mount> mount_of(const std::string& path, const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string place = fs::canonical(path, error).string() + "/";
  if (error) return std::nullopt;
  std::ifstream mounts(fs::path(root) / "proc/self/mountinfo");
  std::optional<Mount> found;
  // "36 35 98:0 /root /nvme rw,noatime master:1 - ext4 /dev/nvme0n1p1 rw"; the last of those that fit is on top.
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    Mount mount;
    std::string word;
    for (int i = 0; i < 5; ++i) words >> mount.point;
    while (words >> word && word != "-") continue;
    words >> mount.type >> mount.source;
    const bool fits = mount.point == "/" || place.starts_with(mount.point + "/");
    if (words && fits && (!found || mount.point.size() >= found->point.size())) found = mount;
  }
  return found;
}

}  // namespace dstrain
