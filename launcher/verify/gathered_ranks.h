// Ranks of this machine that do a piece of work together and hand back what they have found.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/engine/run/run.h"

namespace dstrain {

// The work of a rank: it gets a context with its communicator, slot and threads, and returns bytes. It may abort the
// communicator, if all ranks do.
using RankWork = std::function<std::string(RunContext& context)>;

// Thrown where a signal has asked the ranks to stop.
struct StoppedBySignal {
  int signal = 0;
};

// Runs `work` as each of the job's ranks, which are forks of this process, and returns what they have returned, by rank.
// This process must not have used a GPU or OpenMP. Throws RunError with the root cause if a rank fails,
// and StoppedBySignal.
std::vector<std::string> gather_from_ranks(const Job& job, const RankWork& work);

// Chooses the device of `job` as settle_device() does, without this process using a GPU.
void settle_device_for_forks(Job& job);

}  // namespace dstrain
