#include "runtime/optim/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "runtime/optim/optimizer_rules.h"

namespace dstrain {

namespace {

// Returns the optimizer's own betas, and its learning rates times `factor`.
Rate own_rate(const OptimizerConfig& o, double factor) {
  const double other = o.*optimizer_rule(o.kind).other_lr;
  return {o.lr * factor, o.beta1, o.beta2, other * factor};
}

// `i` is the iteration, as ScheduleRule::rate has it.

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

double warmup(const ScheduleConfig& s, double max_lr, int64_t i) {
  if (i < 0) return s.warmup_min_lr;
  const double share = i < warmup_steps(s) ? warmup_share(s, i) : 1.0;
  return between(s.warmup_min_lr, max_lr, share);
}

double warmup_decay(const ScheduleConfig& s, int64_t i) {
  const int64_t n = warmup_steps(s);
  if (i < n) return warmup(s, s.warmup_max_lr, i);
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
  const auto position = static_cast<double>(rising ? at : first + second - at);
  const auto length = static_cast<double>(rising ? first : second);
  const int64_t count = rising ? s.cycle_first_stair_count : s.cycle_second_stair_count;
  if (count == 0) return position / length;
  const auto stairs = static_cast<double>(count);
  return std::floor(position * stairs / length) / stairs;
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

// Returns the optimizer's betas with one learning rate for all parameters.
Rate one_rate(double lr, const OptimizerConfig& o) {
  return {lr, o.beta1, o.beta2, lr};
}

const char* shape_of_warmup(const ScheduleConfig& s) {
  return s.warmup_linear ? "linear" : "logarithmic";
}

std::string warmup_text(const ScheduleConfig& s) {
  const auto& adam = s.warmup_max_adam_lr;
  return fmt::format("{} to {}{} in {} {} steps", s.warmup_min_lr, s.warmup_max_lr,
                     adam ? fmt::format(" ({} of Adam's parameters)", *adam) : "",
                     s.warmup_num_steps, shape_of_warmup(s));
}

std::string cycle_text(const ScheduleConfig& s) {
  std::string text = fmt::format(
      "{} to {} in {} steps and back in {} (stairs {}, {}), decay {} each {}", s.cycle_min_lr,
      s.cycle_max_lr, s.cycle_first_step_size, s.cycle_second_step_size, s.cycle_first_stair_count,
      s.cycle_second_stair_count, s.decay_lr_rate, s.decay_step_size);
  if (s.cycle_momentum)
    text += fmt::format(", momentum {} to {}, decay {}", s.cycle_min_mom, s.cycle_max_mom,
                        s.decay_mom_rate);
  return text;
}

constexpr ScheduleRule kConstant{
    .kind = ScheduleKind::constant,
    .name = "constant",
    .rate = [](const ScheduleConfig&, const OptimizerConfig& o, int64_t) { return own_rate(o, 1); },
};

constexpr ScheduleRule kRangeTest{
    .kind = ScheduleKind::lr_range_test,
    .name = "LRRangeTest",
    .rate = [](const ScheduleConfig& s, const OptimizerConfig& o,
               int64_t i) { return one_rate(lr_range_test(s, i), o); },
    .largest = [](const ScheduleConfig& s) { return s.range_min_lr; },
    .text =
        [](const ScheduleConfig& s) {
          return fmt::format("from {}, rate {} each {} steps{}", s.range_min_lr, s.range_step_rate,
                             s.range_step_size, s.range_staircase ? ", staircase" : "");
        },
};

constexpr ScheduleRule kOneCycle{
    .kind = ScheduleKind::one_cycle,
    .name = "OneCycle",
    .rate = one_cycle,
    .largest = [](const ScheduleConfig& s) { return s.cycle_max_lr; },
    .text = cycle_text,
};

constexpr ScheduleRule kWarmup{
    .kind = ScheduleKind::warmup,
    .name = "WarmupLR",
    .rate =
        [](const ScheduleConfig& s, const OptimizerConfig& o, int64_t i) {
          Rate rate = one_rate(warmup(s, s.warmup_max_lr, i), o);
          if (const auto& top = s.warmup_max_adam_lr) rate.adam_lr = warmup(s, *top, i);
          return rate;
        },
    .largest = [](const ScheduleConfig& s) { return s.warmup_max_lr; },
    .text = warmup_text,
};

constexpr ScheduleRule kWarmupDecay{
    .kind = ScheduleKind::warmup_decay,
    .name = "WarmupDecayLR",
    .rate = [](const ScheduleConfig& s, const OptimizerConfig& o,
               int64_t i) { return one_rate(warmup_decay(s, i), o); },
    .largest = [](const ScheduleConfig& s) { return s.warmup_max_lr; },
    .text =
        [](const ScheduleConfig& s) {
          return fmt::format("{}, of {}", warmup_text(s), s.total_num_steps);
        },
};

constexpr ScheduleRule kWarmupCosine{
    .kind = ScheduleKind::warmup_cosine,
    .name = "WarmupCosineLR",
    .rate = [](const ScheduleConfig& s, const OptimizerConfig& o,
               int64_t i) { return own_rate(o, warmup_cosine(s, i)); },
    .text =
        [](const ScheduleConfig& s) {
          return fmt::format("ratio {} to 1 in {} {} steps, then to {} at step {}",
                             s.warmup_min_ratio, s.warmup_num_steps, shape_of_warmup(s),
                             s.cos_min_ratio, s.total_num_steps);
        },
};

constexpr std::array kRulesByKind{kConstant, kRangeTest,   kOneCycle,
                                  kWarmup,   kWarmupDecay, kWarmupCosine};

constexpr bool in_order() {
  for (size_t i = 0; i < kRulesByKind.size(); ++i)
    if (kRulesByKind[i].kind != static_cast<ScheduleKind>(i)) return false;
  return true;
}
static_assert(in_order(), "a schedule has no rule");

}  // namespace

const ScheduleRule& schedule_rule(ScheduleKind kind) {
  return kRulesByKind[static_cast<size_t>(kind)];
}

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
