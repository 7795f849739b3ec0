// The memory of a GPU that NCCL's communicators take besides a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

// Which ranks a communicator connects to each other, at the first operation that needs it.
struct NcclConnections {
  bool rings = false;     // neighbours of rings and trees: gathers, broadcasts, NCCL's own sums
  bool peers = false;     // each rank with each: sums in rank order, all-to-alls
  bool messages = false;  // two ranks, when the communicator is made
  bool operator==(const NcclConnections&) const = default;
};

// Returns the bytes of a rank's GPU that a communicator of `ranks` ranks of one host takes at most for its connections. 0 for
// one rank. Ranks of several hosts are reached through buffers that all connections of a communicator share, and take less.
int64_t nccl_bytes(int ranks, const NcclConnections& connections);

// A communicator of a rank, with what it takes.
struct NcclGroup {
  std::string name;  // "ranks with the same parameters", "tensor group", "a link of the pipeline"
  int ranks = 0;
  NcclConnections connections{};
  int64_t bytes = 0;
};

// Returns the communicators of several ranks that carry the job's collectives and messages of the rank at `place`, where GPUs
// communicate by NCCL.
std::vector<NcclGroup> nccl_groups(const Job& job, const Place& place);

// Returns the bytes of those connections that are made at the first collective: what a check of free memory must leave when
// communicators exist already.
int64_t nccl_bytes_to_come(const Job& job, const Place& place);

// Returns a line with the memory of each communicator and of all; empty where the job has none.
std::string nccl_memory_text(const Job& job, const Place& place);

}  // namespace dstrain
