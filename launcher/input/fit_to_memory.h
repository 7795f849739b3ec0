// What a job that runs on this machine changes of itself to fit into the memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

// Settles what the file leaves open (runtime/plan/settings/open_settings.h) where the job fits only so: whether rows of a
// tensor group are gathered again, and the pieces of the loss and of MLPs. Adds it to `request` too. Does nothing on GPUs,
// whose ranks decide it, and without `offered`. `pieces`: whether pieces may be settled, too. Returns true if the job is
// then known to fit.
enum class Pieces : bool { stay_open, settle };
bool settle_open(ConfigRequest& request, LoadedConfig& loaded, std::optional<RankMemory> offered,
                 Pieces pieces);

// Gives the loaded job what `settled`, the same job, has settled, with its origin in resolved_config.json.
void apply_settled(LoadedConfig& loaded, const Job& settled);

// Returns the lines that say so of the file `path`.
std::vector<std::string> settled_lines(const std::string& path, const LoadedConfig& loaded);

}  // namespace dstrain
