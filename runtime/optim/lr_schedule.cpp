#include "runtime/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain {
namespace {

// `i` below is DeepSpeed's last_batch_iteration: -1 before the first applied update.

int64_t warmup_steps(const ScheduleConfig& s) {
  return std::max<int64_t>(2, s.warmup_num_steps);  // ln(1) would divide by zero
}

// Returns the completed share of the warm-up at iteration i < warmup_steps.
double warmup_share(const ScheduleConfig& s, int64_t i) {
  const double n = static_cast<double>(warmup_steps(s));
  if (s.warmup_linear) return static_cast<double>(i) / n;
  return std::log(static_cast<double>(i + 1)) / std::log(n);
}

double between(double low, double high, double share) {
  return low + (high - low) * share;
}

double lr_range_test(const ScheduleConfig& s, int64_t i) {
  double intervals = static_cast<double>(i + 1) / static_cast<double>(s.range_step_size);
  if (s.range_staircase) intervals = std::floor(intervals);
  return s.range_min_lr * (1.0 + s.range_step_rate * intervals);
}

double warmup(const ScheduleConfig& s, int64_t i) {
  if (i < 0) return s.warmup_min_lr;
  const double share = i < warmup_steps(s) ? warmup_share(s, i) : 1.0;
  return between(s.warmup_min_lr, s.warmup_max_lr, share);
}

double warmup_decay(const ScheduleConfig& s, int64_t i) {
  const int64_t n = warmup_steps(s);
  if (i < n) return warmup(s, i);
  const double left = static_cast<double>(s.total_num_steps - i) /
                      static_cast<double>(std::max<int64_t>(1, s.total_num_steps - n));
  return between(s.warmup_min_lr, s.warmup_max_lr, std::max(0.0, left));
}

// Returns the ratio to the optimizer's own lr.
double warmup_cosine(const ScheduleConfig& s, int64_t i) {
  if (i < 0) return 0.0;
  const int64_t n = warmup_steps(s);
  if (i < n) return between(s.warmup_min_ratio, 1.0, warmup_share(s, i));
  const double done = static_cast<double>(i - n + 1) /
                      static_cast<double>(std::max<int64_t>(1, s.total_num_steps - n));
  return between(s.cos_min_ratio, 1.0,
                 (1.0 + std::cos(std::numbers::pi * std::min(1.0, done))) / 2.0);
}

// Returns the height in the cycle (0 at its ends, 1 at its top) at iteration i < first + second.
double cycle_height(const ScheduleConfig& s, int64_t i) {
  const int64_t first = s.cycle_first_step_size, second = s.cycle_second_step_size;
  const int64_t at = (i + 1) % (first + second);
  const bool rising = at <= first;
  const double share = rising
                           ? static_cast<double>(at) / static_cast<double>(first)
                           : static_cast<double>(first + second - at) / static_cast<double>(second);
  const int64_t stairs = rising ? s.cycle_first_stair_count : s.cycle_second_stair_count;
  if (stairs == 0) return share;
  const int64_t climbed = rising ? at * stairs / first : (first + second - at) * stairs / second;
  return static_cast<double>(climbed) / static_cast<double>(stairs);
}

Rate one_cycle(const ScheduleConfig& s, const OptimizerConfig& o, int64_t i) {
  const bool momentum = s.cycle_momentum && optimizer_rule(o.kind).has_betas;
  const auto rate = [&](double lr, double mom) {
    return momentum ? Rate{lr, mom, 0.99, lr} : Rate{lr, o.beta1, o.beta2, lr};
  };
  if (i < 0) return rate(s.cycle_min_lr, s.cycle_min_mom);
  const int64_t total = s.cycle_first_step_size + s.cycle_second_step_size;
  if (i < total) {
    const double height = cycle_height(s, i);
    return rate(between(s.cycle_min_lr, s.cycle_max_lr, height),
                between(s.cycle_max_mom, s.cycle_min_mom, height));
  }
  if (s.decay_step_size == 0) return rate(s.cycle_min_lr, s.cycle_max_mom);
  const double intervals =
      static_cast<double>(i - total + 1) / static_cast<double>(s.decay_step_size);
  return rate(s.cycle_min_lr / (1.0 + s.decay_lr_rate * intervals),
              s.cycle_max_mom * (1.0 + s.decay_mom_rate * intervals));
}

}  // namespace

Rate rate_at(const ScheduleConfig& schedule, const OptimizerConfig& optimizer,
             int64_t applied_steps) {
  const int64_t i = applied_steps - 1;
  const auto both = [&](double lr) { return Rate{lr, optimizer.beta1, optimizer.beta2, lr}; };
  const double other = optimizer.kind == OptimizerKind::muon ? optimizer.adam_lr : optimizer.lr;
  const auto own = [&](double factor) {
    return Rate{optimizer.lr * factor, optimizer.beta1, optimizer.beta2, other * factor};
  };
  switch (schedule.kind) {
    case ScheduleKind::constant:
      break;
    case ScheduleKind::lr_range_test:
      return both(lr_range_test(schedule, i));
    case ScheduleKind::one_cycle:
      return one_cycle(schedule, optimizer, i);
    case ScheduleKind::warmup:
      return both(warmup(schedule, i));
    case ScheduleKind::warmup_decay:
      return both(warmup_decay(schedule, i));
    case ScheduleKind::warmup_cosine:
      return own(warmup_cosine(schedule, i));
  }
  return own(1);
}

}  // namespace dstrain
