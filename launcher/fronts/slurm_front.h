// The front for jobs of Slurm: what dstrain train does differently in one. Stands on slurm.h and
// run_input.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/fronts/slurm.h"

namespace dstrain {

// The job whose ranks this process is to start or to be; nothing outside of one, or where the options
// name another front or hosts of their own. Throws UserError for --launcher slurm outside of a job.
std::optional<SlurmJob> slurm_front(const LaunchOptions& options);

// Whether this process is one of several tasks of srun, and so a rank.
bool is_rank_of_srun(const SlurmJob& job);

// Whether ranks are started by srun rather than on this machine alone: the job has other nodes, or this
// process is beside it, or the options say so.
bool needs_srun(const SlurmJob& job, const LaunchOptions& options);

// In a job that was requeued: --resume from the output directory, if the job has saved its newest
// checkpoint, whatever the job began from. Returns the line to say about it; empty: nothing has changed.
std::string resume_after_requeue(const SlurmJob& job, ConfigRequest& request);

// The number of ranks: --num_gpus on every node, or the tasks of the job. Left open where neither is said
// and one task, this process, has the node's devices.
void settle_ranks(const SlurmJob& job, ConfigRequest& request);

// Becomes the srun that starts `ranks` ranks with these words. Throws UserError.
[[noreturn]] void launch_by_srun(const SlurmJob& job, const LaunchOptions& options, int ranks,
                                 const std::vector<std::string>& words);

}  // namespace dstrain
