#include "runtime/storage/disk/free_space.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include "runtime/core/text.h"
#include "runtime/storage/disk/mount.h"

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
  const std::optional<Mount> mount = mount_of(path, root);
  return mount ? fmt::format("{}, mounted at {}", mount->source, mount->point) : "";
}

}  // namespace dstrain
