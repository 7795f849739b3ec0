// What this machine offers a run: memory, and what the kernel says about memory that ran out. Stands
// on /proc and the cgroup files (version 1 and 2) below `root`, so that tests can make up a machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace dstrain {

struct MemoryOffer {
  int64_t bytes = 0;
  std::string source;  // for messages: "MemAvailable in /proc/meminfo"
};

// Memory that processes of this user can still take: what the kernel calls available, or what a
// cgroup around this process leaves, whichever is less. Throws RunError where /proc/meminfo cannot be
// read.
MemoryOffer available_memory(const std::filesystem::path& root = "/");

// What this machine calls itself.
std::string host_name();

// The same text for two processes whose host is one: booted once, with one network and one name.
std::string host_identity();

// How many files this process may have open (ulimit -n).
int64_t open_files_limit();

// How often the kernel has killed a process of this cgroup because its memory ran out; 0 where it
// does not count.
int64_t out_of_memory_kills(const std::filesystem::path& root = "/");

}  // namespace dstrain
