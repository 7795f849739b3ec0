#include "runtime/storage/free_space.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "runtime/core/text.h"

namespace dstrain {

std::optional<int64_t> free_bytes(const std::string& directory) {
  struct statvfs found {};
  if (::statvfs(directory.c_str(), &found) != 0 || found.f_blocks == 0) return std::nullopt;
  return static_cast<int64_t>(found.f_bavail) * static_cast<int64_t>(found.f_frsize);
}

std::string lack_of_space(const std::string& what, int64_t needed, std::optional<int64_t> free,
                          const std::string& directory) {
  if (!free || needed <= *free) return "";
  return fmt::format("{} needs {}, and {} are free in {}", what,
                     bytes_text(static_cast<double>(needed)),
                     bytes_text(static_cast<double>(*free)), directory);
}

std::string drive_of(const std::string& path, const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string place = fs::canonical(path, error).string() + "/";
  if (error) return "";
  std::ifstream mounts(fs::path(root) / "proc/self/mountinfo");
  std::string drive, at;
  // "36 35 98:0 /root /nvme rw,noatime master:1 - ext4 /dev/nvme0n1p1 rw"; the last of those that fit is on top.
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string word, point, source;
    for (int i = 0; i < 5; ++i) words >> point;
    while (words >> word && word != "-") continue;
    words >> word >> source;
    const bool fits = point == "/" || place.starts_with(point + "/");
    if (!words || !fits || point.size() < at.size()) continue;
    drive = source;
    at = point;
  }
  return at.empty() ? "" : fmt::format("{}, mounted at {}", drive, at);
}

}  // namespace dstrain
