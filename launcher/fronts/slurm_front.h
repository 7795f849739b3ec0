// The front for Slurm jobs: what dstrain train does differently in one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/fronts/slurm.h"

namespace dstrain {

// Returns the job whose ranks this process starts, or of which it is a rank. Returns nothing outside a job, and if the
// options choose another front or a hostfile. Throws UserError for --launcher slurm outside a job.
std::optional<SlurmJob> slurm_front(const LaunchOptions& options);

// Returns whether this process is one of several tasks of srun, and so a rank.
bool is_rank_of_srun(const SlurmJob& job);

// Returns whether srun must start the ranks: the job has several nodes, this process runs outside its nodes, or the
// options ask for it.
bool needs_srun(const SlurmJob& job, const LaunchOptions& options);

// If the job was requeued and has saved the newest checkpoint of the output directory, makes `request` resume from
// there, whatever it started from at first. Returns a line for the log; empty if the job was not requeued.
std::string resume_after_requeue(const SlurmJob& job, ConfigRequest& request);

// Sets the number of ranks: --num_gpus times the nodes, else the tasks of the job. Leaves it open if the job has one
// task, which may use all devices of its node.
void settle_ranks(const SlurmJob& job, ConfigRequest& request);

// Replaces this process by the srun that starts `ranks` ranks with these words, `each` of them on every node (--num_gpus;
// 0: as Slurm places them). Throws UserError.
[[noreturn]] void launch_by_srun(const SlurmJob& job, const LaunchOptions& options, int ranks,
                                 int each, const std::vector<std::string>& words);

}  // namespace dstrain
