// ScheduleRule: what the optimizer's state, checkpoints and verify know of a learning-rate schedule. The keys of the
// configuration are in runtime/config/keys/deepspeed/scheduler.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/config/job.h"
#include "runtime/optim/lr_schedule.h"

namespace dstrain {

// One schedule.
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

// Returns the optimizer's own betas, and its learning rates times `factor`.
Rate own_rate(const OptimizerConfig& optimizer, double factor);

}  // namespace dstrain
