// Fit: what a job would need with other settings, found by planning them: a higher ZeRO stage, recompute,
// a smaller micro-batch with more accumulation. None of them changes what is learned. Pure, like plans.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/core/devices/device.h"
#include "runtime/plan/plan.h"

namespace dstrain {

struct Variant {
  std::string settings;  // as the command line takes them: "--set dstrain.recompute=1"
  int64_t bytes = 0;     // of a rank
  double slowdown = 1;   // of a step against the job itself, estimated from work and traffic
};

// The job with one setting changed, for each that could need less; cheapest in time first.
std::vector<Variant> single_changes(const Job& job);

// At most `most` ways to fit a rank into `offered` bytes, cheapest in time first: of one change, where
// that gives too few of two, and then of three. `ranks_on_host`: as planned_bytes() takes it.
std::vector<Variant> ways_to_fit(const Job& job, int64_t offered, size_t most = 3,
                                 int ranks_on_host = 0);

// The same as half a sentence: "to fit, add --set ... (1.2 GB), or ..."; what else helps where none does.
std::string advice_to_fit(const Job& job, int64_t offered, int ranks_on_host = 0);

// A table of single_changes().
std::string changes_text(const Job& job);

// Throws UserError, on every rank, where the free memory of a device does not hold what `memory` says for
// each of the ranks that share it; before anything is reserved. Collective over `host`; `sharing`: how
// many ranks use this rank's device. Nothing is checked on a device whose memory is the host's.
void check_device_memory(const Job& job, const MemoryTable& memory, const Device& device,
                         int sharing, Communicator& host);

}  // namespace dstrain
