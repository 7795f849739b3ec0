// What a run says of itself on its first line and on its last. Pure text.
#pragma once

#include <optional>
#include <string>

#include "runtime/config/job.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// What the run is and where it begins: parameters, precision, stage, ranks, batch, steps, and how long a
// step may take where that is long. `done`: steps of the run that is resumed; `threads`: of a rank.
std::string first_line(const Job& job, const Plan& train, int64_t done, int threads);

struct RunEnd {
  int64_t first_step = 0, steps = 0;  // done before this run, and now
  bool stopped = false;               // by a signal
  double seconds = 0;
  std::optional<double> loss = {}, validation_loss = {};  // the last ones
};

// How far the run came, its last losses, where its results are.
std::string last_line(const Job& job, const RunEnd& end);

}  // namespace dstrain
