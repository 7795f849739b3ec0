// The fronts: what dstrain train comes to, by who started this process and where ranks are to run. Each is
// a file of its own; train.cpp chooses. Invariant: each returns the exit status of the contract.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/fronts/slurm.h"
#include "launcher/input/run_input.h"
#include "launcher/placement/resources.h"
#include "launcher/ranks/rank_command.h"

namespace dstrain {

// A rank that a launching dstrain started: its failure goes to the board, its launcher reports it.
int run_launched_rank(const TrainArguments& arguments);
// The same for a fork of the launching process, which has read the input.
int run_forked_rank(const RunInput& input, const LaunchOptions& options);

// A rank that a user's own mpirun or srun (then `job`) started. There is no launching process: rank 0
// speaks for the input, and whoever fails first for the run.
int run_world_rank(const TrainArguments& arguments, const std::optional<SlurmJob>& job);

// The whole run in this process, without MPI.
int run_alone(const RunInput& input, const LaunchOptions& options);

// Ranks on this machine, supervised: forks of this process, or where they use GPUs programs of their own
// with the command line `words`.
int run_local_ranks(const RunInput& input, const TrainArguments& arguments,
                    const std::vector<std::string>& words);

// What run_local_ranks() runs, as --dry_run shows it.
RankCommand local_command(const Job& job, const std::vector<std::string>& words);

// Whether ranks are started as on several hosts: there are several, or the one is another machine.
// Throws UserError where the options say that they are not, and there are.
bool on_hosts(const Placement& placement, const LaunchOptions& options);

// Ranks on the hosts of a placement, supervised there and here.
int run_on_hosts(const Placement& placement, const TrainArguments& arguments, const RunInput& input,
                 const std::vector<std::string>& words);

}  // namespace dstrain
