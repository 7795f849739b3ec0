// Free space of a file system, checked before large files are written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dstrain {

// Returns the bytes that this user can still write below an existing directory; nothing if they are unknown.
std::optional<int64_t> free_bytes(const std::string& directory);

// Returns "saving step 4 needs 1.20 GB, and 1.00 GB are free in out/checkpoints", or an empty string if `needed`
// bytes are free or `free` is unknown.
std::string lack_of_space(const std::string& what, int64_t needed, std::optional<int64_t> free,
                          const std::string& directory);

// Returns what an existing path lies on: "/dev/nvme0n1p1, mounted at /nvme"; empty if it is not known. `root` is the root
// of the file system, whose proc/self/mountinfo is read; tests replace it.
std::string drive_of(const std::string& path, const std::string& root = "/");

}  // namespace dstrain
