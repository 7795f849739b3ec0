// Trace: when the instructions of some steps ran, on every queue of every rank, as a file for Perfetto
// or chrome://tracing (the Trace Event Format). Times are those of the clock that all processes of a
// machine share.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/plan/plan.h"

namespace dstrain {

struct TimeSpan {
  int64_t begin_ns = 0, end_ns = 0;
  int64_t size() const { return end_ns - begin_ns; }
};

// What the executor notes down of one step. Sized once by prepare(), so that recording allocates
// nothing.
struct StepTrace {
  int64_t step = 0;
  TimeSpan whole;
  std::vector<TimeSpan> issues;  // of every issue of the plan; of a collective: start to completion
  std::vector<TimeSpan> waits;   // before every issue, and at the end, for collectives

  void prepare(const Plan& plan);
};

// Where a step's time went, in seconds: instructions at work, nothing to do but wait for peers, the
// rest.
struct StepSplit {
  double compute = 0, exposed_comm = 0, other = 0;
};
StepSplit split_of(const Plan& plan, const StepTrace& trace);

// Writes the steps of all ranks to `path` on rank 0: a process per rank, a track per queue. Collective.
void write_trace(const std::string& path, const Plan& plan, const std::vector<StepTrace>& steps,
                 Communicator& comm);

}  // namespace dstrain
