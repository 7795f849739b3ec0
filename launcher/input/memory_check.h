// The memory that the ranks of a run need on one machine, compared with what it offers before anything is started.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/placement/machine.h"
#include "runtime/plan/settings/fit.h"

namespace dstrain {

// What the processes of ranks are: forks of a process that has read the input, which share its pages, or programs that
// share nothing.
enum class RankProcesses { forks, programs };

// Returns what the ranks are that a launching process starts on its own machine.
RankProcesses local_ranks(const Job& job);

// Returns the job as far as a machine of `ranks_here` of its ranks can tell before the start: shards of a host, whose
// number of ranks all hosts find out together, have this one's.
Job job_of_host(const Job& job, int ranks_here);

// The host's memory that the ranks of one machine need, in bytes.
struct HostMemoryNeed {
  int ranks = 1;
  int64_t planned = 0;       // of each rank: what its plan reserves there
  int64_t process = 0;       // of each rank: what its process takes besides
  int64_t shared = 0;        // of all ranks: pages that they share
  bool lower_bound = false;  // the run needs more than this

  double total() const {
    return (static_cast<double>(planned) + static_cast<double>(process)) * ranks +
           static_cast<double>(shared);
  }
  // Returns the bytes that the plan of each rank may have so that total() is `offered` at most.
  int64_t most_planned(int64_t offered) const { return (offered - shared) / ranks - process; }
};

// Returns what `ranks` ranks of the job need on one machine; with GPUs of its host's memory. The part of a process is
// measured for forks: that of the calling process, which has planned the job (`plan`), and what a rank adds at its start.
// For programs it is kProcessOverheadBytes.
HostMemoryNeed memory_need(const Job& job, const PlannedMemory& plan, const PlanInputs& inputs,
                           int ranks, RankProcesses processes);

// Returns the sum as text: "25.6 MB (4 ranks x (238 kB planned + 3.31 MB of a process) + 11.4 MB that they share)".
std::string sum_text(const HostMemoryNeed& need);

// Returns a line about what `ranks` ranks with these plans need that a launching process starts on one machine.
std::string machine_line(const Job& job, const PlannedMemory& plan, const PlanInputs& inputs,
                         int ranks);

// Throws UserError, with the sum, `offered`, its source and what to do (`advice`), if the need is larger than `offered`
// bytes.
void check_memory(const HostMemoryNeed& need, int64_t offered, const std::string& source,
                  const std::string& advice);

// Returns what makes any run of the job's model need less: "use fewer ranks, ...".
std::string ways_to_need_less(const Job& job);

// Checks this machine's memory for `ranks_here` ranks of the job. Throws UserError.
void check_memory_here(const Job& job, int ranks_here, RankProcesses processes);

// Throws UserError, with what to do (`advice`), if the forward pass of a trained model in this process takes more than is
// offered. `lower_bound`: it takes more than `bytes`.
void check_forward_memory(int64_t bytes, bool lower_bound, const MemoryOffer& offer,
                          const std::string& advice);

}  // namespace dstrain
