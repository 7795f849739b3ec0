// This machine's memory: what it has, what is available, how the system provides it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "launcher/doctor/machine_line.h"
#include "launcher/placement/machine.h"

namespace dstrain {

// The memory of this machine, in bytes.
struct MemoryFacts {
  int64_t physical = 0, swap = 0, free_swap = 0;
  MemoryOffer available;
  int64_t overcommit = 0;                    // vm.overcommit_memory: 0, 1, or 2 (strict)
  int64_t commit_limit = 0, committed = 0;   // what may be reserved, and is, if overcommit is 2
  std::optional<int64_t> shm{}, free_shm{};  // of /dev/shm; nothing: it is not there
};

// Reads files below `root`, which tests replace. Throws RunError if there is no proc/meminfo.
MemoryFacts memory_facts(const std::filesystem::path& root);

// Returns the lines about memory for a run of `ranks` ranks on a machine with `gpus` GPUs.
MachineLines memory_lines(const MemoryFacts& facts, int ranks, int gpus);

}  // namespace dstrain
