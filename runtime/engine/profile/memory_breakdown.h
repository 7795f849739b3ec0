// The table of memory_breakdown: what the plan reserves on a rank, by purpose, and what is in use once a step has run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/engine/step/arenas.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// Bytes that are in use on a rank.
struct MeasuredMemory {
  int64_t reserved = 0;  // of the plan's regions, on the device and on the host, in whole pages
  int64_t resident =
      0;  // the process's largest resident set: also its code, libraries and shared pages
  int64_t gpu_in_use =
      0;  // of the rank's GPU, by all processes; 0: the device has no memory of its own
};

// The memory of two ranks: of those whose plans reserve most and least on their device. `measured`: the largest and the
// smallest value of any rank, once a step has run.
struct MemoryBreakdown {
  MemoryTable largest{}, smallest{};
  struct Extremes {
    MeasuredMemory largest{}, smallest{};
  };
  std::optional<Extremes> measured{};
};

// Returns the largest resident set that the process has had; 0 if `status` does not say it.
int64_t peak_resident_bytes(const std::filesystem::path& status = "/proc/self/status");

// Returns the breakdown of all ranks, with what is measured if `measure` says so. Collective.
MemoryBreakdown memory_breakdown(const MemoryTable& planned, const Arenas& arenas, bool measure,
                                 Communicator& comm);

// Returns a table with a line for each purpose, and the planned bytes of both ranks beside what is measured. Pure.
std::string memory_breakdown_text(const MemoryBreakdown& memory);

// Logs the table of all ranks on rank 0. Collective.
void log_memory_breakdown(const MemoryTable& planned, const Arenas& arenas, bool measure,
                          Communicator& comm);

}  // namespace dstrain
