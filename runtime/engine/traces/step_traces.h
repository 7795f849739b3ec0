// StepTraces: which steps of a run are traced, and the files that this gives: the first steps, if the job names a file
// for them, and the steps after a request, as often as there is one. All ranks trace the same steps: the trainer lets
// them agree on a request at the end of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/core/rank_board.h"
#include "runtime/engine/step/trace.h"

namespace dstrain {

// Returns the path of a file that is not there, for a trace that begins with `step`: DIRECTORY/trace_step_12.json, else
// DIRECTORY/trace_step_12_2.json, and so on.
std::string new_trace_file(const std::string& directory, int64_t step);

class StepTraces {
 public:
  static constexpr size_t kSteps = 6;  // of a trace

  // `requests`: receives this rank's requests; may be null. The caller must keep both alive.
  StepTraces(const Job& job, const RankBoard* requests) : job_(job), requests_(requests) {}

  // Returns whether this rank has been asked for a trace since the ranks last agreed on a request.
  bool is_requested() const {
    return requests_ != nullptr && requests_->trace_requests() > accepted_;
  }
  // Takes a request on which the ranks have agreed: the next steps are traced, in a run whose first ones are traced those
  // after them. While a trace is being taken it changes nothing. On rank 0 (`root`) a line says which it is.
  void accept_request(bool root);

  // Returns the trace that the step is to fill, or null if it needs none. `measured`: it needs one for another purpose.
  StepTrace* begin(int64_t step, const Plan& plan, bool measured);
  // Returns the trace of the newest step, or null if it has none.
  const StepTrace* newest() const { return newest_; }

  // Ends a step. Writes the trace that was asked for, once all of its steps have run; a file that cannot be written is a
  // warning, and the run goes on. `asked`: the step's end has told that a rank was asked for something, and the ranks
  // exchange whether it is a trace. Collective.
  void end_step(Communicator& comm, bool asked);
  // Writes at the run's end the trace of the first steps, and a requested one with the steps that it has. Throws RunError
  // if the former cannot be written. Collective.
  void finish(Communicator& comm);

 private:
  bool is_taking() const { return left_ > 0 || !requested_.empty(); }
  void write_requested(Communicator& comm);

  const Job& job_;
  const RankBoard* requests_;
  int64_t accepted_ = 0;    // requests of `requests_` on which the ranks have agreed
  size_t left_ = 0;         // steps still to be traced because of a request
  bool has_noted_ = false;  // that a request came while a trace was being taken
  std::vector<StepTrace> first_, requested_;
  StepTrace other_;  // of the newest step that has one and is in neither
  const StepTrace* newest_ = nullptr;
};

}  // namespace dstrain
