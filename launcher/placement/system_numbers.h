// Numbers that the system tells: those in the kernel's files and in files of control groups, and limits of this process.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace dstrain {

// A limit that is none.
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Returns the first number in a file; nothing if there is no file, or no number in front ("max").
inline std::optional<int64_t> system_number(const std::filesystem::path& file) {
  std::ifstream in(file);
  int64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

// Returns the number after the word `key` at the beginning of a line; nothing if no line has both.
inline std::optional<int64_t> system_number(const std::filesystem::path& file,
                                            const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t value = 0;
    if (words >> word >> value && word == key) return value;
  }
  return std::nullopt;
}

// Returns this process's limit on `resource` (RLIMIT_NOFILE), the one that holds now; kUnlimited if there is none.
inline int64_t resource_limit(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace dstrain
