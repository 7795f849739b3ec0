// Trains a few steps and returns the results, to compare runs that must be equal bit for bit.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/run/run.h"
#include "runtime/engine/step/backend.h"

namespace dstrain {

// The results of a short run on one rank, for comparison with another run.
struct RunResult {
  std::vector<double> loss;        // per step, summed over the targets
  std::vector<float> norm;         // of the gradient, per step
  std::vector<int> skipped;        // per step
  std::vector<float> scale;        // loss scale, per step
  std::vector<float> weights;      // all masters; on rank 0 only
  std::vector<float> averages;     // of the weights (dstrain.ema); on rank 0 only
  std::vector<float> buffers;      // all registered ones, in order; on rank 0 only
  int64_t planned_bytes = 0;       // of this rank's device
  int64_t planned_host_bytes = 0;  // of the host, besides
  int64_t planned_disk_bytes = 0;
  int64_t sent_per_step = 0;    // counted by the communicator, in the newest step
  int64_t planned_to_send = 0;  // the same by the plan
};

// Trains `steps` steps of `job`, from the weights that it names, on the ranks of context.comm. Collective.
RunResult run_steps(const Job& job, const Dataset& data, RunContext& context, int steps,
                    Backend backend);

// Returns the first difference on any rank, or "" if all bits are equal. Collective.
std::string difference(const RunResult& a, const RunResult& b, Communicator& comm);

}  // namespace dstrain
