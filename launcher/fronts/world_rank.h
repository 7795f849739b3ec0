// A rank that the user's mpirun or srun started. There is no launching process: rank 0 checks and reports the input,
// and the rank that fails first reports the failure.
#pragma once

#include <optional>
#include <string>

#include "launcher/cli/arguments.h"
#include "launcher/fronts/slurm.h"

namespace dstrain {

// Runs this process as a rank. `job`: the Slurm job if srun started it. `secret`: of the run; empty: none. Returns the
// exit status.
int run_world_rank(const TrainArguments& arguments, const std::optional<SlurmJob>& job,
                   const std::string& secret);

}  // namespace dstrain
