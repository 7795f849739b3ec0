#include "runtime/optim/lr_schedule.h"

#include "runtime/optim/schedule_rules.h"

namespace dstrain {

Rate rate_at(const ScheduleConfig& schedule, const OptimizerConfig& optimizer,
             int64_t applied_steps) {
  // DeepSpeed's schedules set a first value only if they begin at -1; otherwise step 1 has the optimizer's own.
  const bool own = schedule.last_batch_iteration >= 0 && applied_steps == 0;
  Rate rate = own ? own_rate(optimizer, 1)
                  : schedule_rule(schedule.kind)
                        .rate(schedule, optimizer, schedule.last_batch_iteration + applied_steps);
  rate.lr /= 1.0 + static_cast<double>(applied_steps) * optimizer.lr_decay;
  return rate;
}

}  // namespace dstrain
