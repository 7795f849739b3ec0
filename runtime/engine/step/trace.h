// Trace: when the instructions of some steps ran, on every queue of every rank, as a file in the Trace Event
// Format for Perfetto or chrome://tracing. Times are of the monotonic clock, which the processes of a machine
// share.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// The begin and the end of an activity, in nanoseconds of the monotonic clock.
struct TimeSpan {
  int64_t begin_ns = 0, end_ns = 0;
  int64_t size() const { return end_ns - begin_ns; }
};

// The times that the executor records of one step. prepare() allocates, so that recording does not.
struct StepTrace {
  int64_t step = 0;
  const Plan* plan = nullptr;  // that the step ran; set by prepare()
  TimeSpan whole;
  std::vector<TimeSpan>
      issues;  // of every issue of the plan; of a collective from start to completion
  std::vector<TimeSpan>
      waits;  // for collectives and copies: before every issue, and at the end of the step

  // The caller must keep the plan alive.
  void prepare(const Plan& traced);
};

// The time of a step in seconds: `compute` in instructions, `exposed_comm` waiting for peers, `other` the rest.
struct StepSplit {
  double compute = 0, exposed_comm = 0, other = 0;
};
StepSplit split_of(const StepTrace& trace);

// Returns the text of the file, on rank 0, of the steps of all ranks: a process per rank, a track per queue. Elsewhere
// it is empty. Collective.
std::string trace_text(const std::vector<StepTrace>& steps, Communicator& comm);
// Writes this text to `path`, on rank 0. Collective.
void write_trace(const std::string& path, const std::vector<StepTrace>& steps, Communicator& comm);

}  // namespace dstrain
