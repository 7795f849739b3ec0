// What a job that runs on this machine changes of itself to fit into the memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/input/memory_check.h"
#include "runtime/config/load.h"

namespace dstrain {

// A machine's memory that its ranks may have.
struct RankMemory {
  int64_t bytes = 0;
  int ranks = 1;
  RankProcesses processes = RankProcesses::programs;
};

// Returns whether the plan of a job, whose vocabulary is known, fits into what is offered, and into its device_memory.
bool fits(const Job& job, const RankMemory& offered);

// Lets the ranks of a tensor group gather rows again where the file leaves that open and the job fits only so. Adds it to
// `request` too. Does nothing on GPUs, whose ranks decide it, and without `offered`.
void settle_gathers(ConfigRequest& request, LoadedConfig& loaded,
                    std::optional<RankMemory> offered);

// Sets what settle_gathers() sets, with its origin in resolved_config.json.
void apply_gathers(LoadedConfig& loaded);

// Returns the line that says so of the file `path`; empty if the memory is not the reason, or rows are kept.
std::string gathers_line(const std::string& path, const LoadedConfig& loaded);

}  // namespace dstrain
