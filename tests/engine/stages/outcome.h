// What a run left behind, bit for bit: for comparing runs that must not differ.
#pragma once

#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/step/backend.h"

namespace dstrain {

struct Outcome {
  std::vector<double> loss;     // per step, summed over the targets
  std::vector<float> norm;      // of the gradient, per step
  std::vector<int> skipped;     // per step
  std::vector<float> scale;     // loss scale, per step
  std::vector<float> weights;   // all masters; rank 0 alone
  int64_t planned_bytes = 0;    // of this rank
  int64_t sent_per_step = 0;    // counted by the communicator, in the newest step
  int64_t planned_to_send = 0;  // the same by the plan
};

// Fresh weights, then `steps` steps of `job` on the ranks of `comm`. Collective.
Outcome run_steps(const Job& job, const Dataset& data, Communicator& comm, int steps,
                  int threads = 1);
// The same on a device and with kernels of the caller's.
Outcome run_steps(const Job& job, const Dataset& data, Communicator& comm, int steps, int threads,
                  Backend backend);

// "" where the two have the same bits, else what differs first. Collective: every rank learns it.
std::string difference(const Outcome& a, const Outcome& b, Communicator& comm);

// A line that says all about a job that these tests vary.
std::string describe(const Job& job);

}  // namespace dstrain
