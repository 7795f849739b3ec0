// run_steps() for tests, on the kernels of the program.
#pragma once

#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/run/run_steps.h"
#include "runtime/engine/step/backend.h"

namespace dstrain {

// Trains `steps` steps of `job` from fresh weights on the ranks of `comm`. Collective.
RunResult run_steps(const Job& job, const Dataset& data, Communicator& comm, int steps,
                    int threads = 1);
// The same, on the caller's backend.
RunResult run_steps(const Job& job, const Dataset& data, Communicator& comm, int steps, int threads,
                    Backend backend);

// Returns a line with all settings of a job that these tests vary.
std::string describe(const Job& job);

}  // namespace dstrain
