#include "runtime/optim/zero_one_steps.h"

#include <algorithm>

#include "runtime/optim/lr_schedule.h"

namespace dstrain {
namespace {

// Returns whether gradients travel whole in update `step`, counted from 1.
bool updates_variance(int64_t scaler, int64_t step) {
  int64_t interval = 1;
  while (step > scaler * interval) {
    step -= scaler * interval;
    interval *= 2;
  }
  return step % interval == 0;
}

// Returns whether local step `step`, counted from 1, synchronises.
bool synchronises(const ZeroOneConfig& config, int64_t step) {
  constexpr int64_t kMostDoublings = 62;
  const int64_t doublings = (step - 1) / config.local_step_scaler;
  const int64_t interval = int64_t{1} << std::min(doublings, kMostDoublings);
  return step % std::min(interval, config.local_step_clipper) == 0;
}

}  // namespace

ZeroOneStep zero_one_step(const ZeroOneConfig& config, int64_t applied_steps) {
  const int64_t local = applied_steps + 1 - config.var_freeze_step;
  if (local > 0) return synchronises(config, local) ? ZeroOneStep::synchronise : ZeroOneStep::local;
  return updates_variance(config.var_update_scaler, applied_steps + 1)
             ? ZeroOneStep::gradients
             : ZeroOneStep::gradient_signs;
}

int64_t open_local_steps(const ZeroOneConfig& config, int64_t applied_steps) {
  int64_t count = 0;
  while (count < applied_steps &&
         zero_one_step(config, applied_steps - 1 - count) == ZeroOneStep::local)
    ++count;
  return count;
}

double open_local_rates(const Job& job, int64_t applied_steps) {
  double sum = 0;
  for (int64_t i = open_local_steps(job.optimizer.zero_one, applied_steps); i > 0; --i)
    sum += static_cast<float>(rate_at(job.schedule, job.optimizer, applied_steps - i).lr);
  return sum;
}

}  // namespace dstrain
