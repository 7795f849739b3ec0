// This machine: its names, its available memory, and how often the kernel killed processes because memory ran out.
// Reads /proc and the cgroup files (versions 1 and 2) below `root`, which tests replace.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace dstrain {

// The number of bytes that a run may still allocate on this machine, and the source of this number.
struct MemoryOffer {
  int64_t bytes = 0;
  std::string source;  // for messages: "MemAvailable in /proc/meminfo"
};

// Returns the memory that processes of this user can still allocate: what the kernel calls available, or what a cgroup
// of this process leaves, whichever is less. Throws RunError if /proc/meminfo cannot be read.
MemoryOffer available_memory(const std::filesystem::path& root = "/");

// Returns the host name of this machine.
std::string host_name();

// Returns whether `host` names this machine: localhost, 127.0.0.1, or its host name with or without the domain.
bool is_this_machine(const std::string& host);

// Returns the same text in all processes of one host: it holds the boot id, the network namespace and the host name.
std::string host_identity();

// Returns the file in which the kernel counts the processes of one cgroup, that of process `pid`, which it kills because
// memory runs out. Where it knows no memory cgroups that is the machine's; empty if it does not count them.
std::filesystem::path kill_counter(pid_t pid, const std::filesystem::path& root = "/");

// Returns the number in a file of kill_counter(); 0 if it cannot be read.
int64_t kills_in(const std::filesystem::path& counter);

}  // namespace dstrain
