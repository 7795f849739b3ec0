// Learning-rate schedules: DeepSpeed's five, as pure functions of the number of updates applied so
// far. Stands on the checked configuration alone; the trainer calls it once before a step.
// Invariant: no state. A resumed run, and a run that skipped steps, gets its rate from the counter
// that the checkpoint holds anyway.
#pragma once

#include <cstdint>

#include "runtime/config/job.h"

namespace dstrain {

// What one optimizer step uses. The betas are the optimizer's own, save under OneCycle with
// cycle_momentum, which moves beta1 and fixes beta2 at 0.99.
struct Rate {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
};

// The rate of optimizer step number applied_steps + 1. As in DeepSpeed the schedule advances after
// an update that was applied, so the first step uses the schedule's initial value and step n >= 2
// its value at iteration n - 2. Pure; `schedule` is taken as valid (the configuration checks it).
Rate rate_at(const ScheduleConfig& schedule, const OptimizerConfig& optimizer,
             int64_t applied_steps);

}  // namespace dstrain
