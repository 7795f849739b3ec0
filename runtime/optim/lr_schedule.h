// Learning-rate schedules: DeepSpeed's five, as pure functions of the number of updates applied so far. They
// have no state, so that a resumed run, or a run that skipped steps, needs only that counter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/config/job.h"

namespace dstrain {

// The learning rates and the betas of one optimizer step. The betas are the optimizer's own, except with
// OneCycle and cycle_momentum, which changes beta1 and sets beta2 to 0.99.
struct Rate {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double adam_lr = 0;  // with Muon: of the parameters that it leaves to Adam; else lr
};

// What the optimizer's state, checkpoints and verify know of a schedule. Its keys are in
// runtime/config/keys/deepspeed/scheduler.cpp.
struct ScheduleRule {
  ScheduleKind kind{};
  std::string_view name{};  // DeepSpeed's
  // Returns the rates at an iteration, DeepSpeed's last_batch_iteration, which grows by 1 with each applied update.
  Rate (*rate)(const ScheduleConfig& schedule, const OptimizerConfig& optimizer,
               int64_t iteration) = nullptr;
  // Returns the largest learning rate. Null: the optimizer's own.
  double (*largest)(const ScheduleConfig& schedule) = nullptr;
  // Returns its constants in words, which a resumed run compares. Null: it has none.
  std::string (*text)(const ScheduleConfig& schedule) = nullptr;
};

// Returns the rule of a schedule.
const ScheduleRule& schedule_rule(ScheduleKind kind);

// Returns the rate of optimizer step number applied_steps + 1. As in DeepSpeed, the schedule advances after an
// applied update: the first step uses the schedule's initial value, step n >= 2 its value at iteration n - 2. A schedule
// whose last_batch_iteration is L >= 0 has no initial value: the first step uses the optimizer's own rates, step n >= 2
// the value at iteration L + n - 1.
// `schedule` must be valid; the configuration checks it.
Rate rate_at(const ScheduleConfig& schedule, const OptimizerConfig& optimizer,
             int64_t applied_steps);

}  // namespace dstrain
