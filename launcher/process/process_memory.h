// The resident memory of a process, as /proc shows it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace dstrain {

struct ProcessMemory {
  int64_t own = 0;      // bytes of pages without a file: heap, stacks, written data
  int64_t program = 0;  // bytes of the program's and its libraries' files, which processes share
};

// Returns the resident memory that `smaps` lists. Other files that are mapped, such as data, do not count: the kernel
// frees their pages when memory is needed. Throws RunError if the file cannot be read.
ProcessMemory process_memory(const std::filesystem::path& smaps = "/proc/self/smaps");

}  // namespace dstrain
