// Free space of a file system, looked at before something large is written to it. Stands on POSIX.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dstrain {

// Bytes that this user may still write below an existing directory; nothing where the system does not say.
std::optional<int64_t> free_bytes(const std::string& directory);

// "saving step 4 needs 1.20 GB, and 1.00 GB are free in out/checkpoints"; empty where `needed` bytes are
// free, or nobody knows.
std::string lack_of_space(const std::string& what, int64_t needed, std::optional<int64_t> free,
                          const std::string& directory);

}  // namespace dstrain
