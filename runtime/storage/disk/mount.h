// The file system that a path lies on.
#pragma once

#include <optional>
#include <string>

namespace dstrain {

// A mounted file system.
struct Mount {
  std::string type;    // "ext4"
  std::string source;  // "/dev/nvme0n1p1"
  std::string point;   // "/nvme"
};

// Returns what an existing path lies on; nothing if it is not known. `root` is the root of the file system, whose
// proc/self/mountinfo is read; tests replace it.
std::optional<Mount> mount_of(const std::string& path, const std::string& root = "/");

}  // namespace dstrain
