#include "runtime/config/solve/solve_schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/optimizer_types.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

// Reports that the optimizer's learning rates have no effect where they differ from that of the schedule, in `key`.
// They have one in step 1 of a schedule that does not begin at its first value.
void overrule_lr(const Job& job, Values& v, Diagnostics& diagnostics, const Facts& facts,
                 std::string_view key, double rate) {
  if (diagnostics.stopped(key) || job.schedule.last_batch_iteration >= 0) return;
  const double of_others = job.schedule.warmup_max_adam_lr.value_or(rate);
  const auto overrule = [&](std::string_view own, double value, bool has_effect) {
    if (!find_key(facts, own) || !v.given(own) || has_effect) return;
    const std::string message =
        fmt::format("the scheduler overrules it: {} is {}", key, json_text(rate));
    diagnostics.no_effect(own, message);
    diagnostics.warning(own, fmt::format("{} has no effect, {}", json_text(value), message));
  };
  const OptimizerConfig& o = job.optimizer;
  overrule("optimizer.params.muon_lr", o.lr, rate == o.lr);
  overrule("optimizer.params.adam_lr", o.adam_lr, of_others == o.adam_lr);
  if (const Member* lr = v.given("optimizer.params.lr")) {
    const double value = to_real(lr->value).value_or(o.lr);
    overrule("optimizer.params.lr", value, rate == value || of_others == value);
  }
}

void solve_one_cycle(Job& job, Values& v, Diagnostics& diagnostics, const Facts& facts) {
  ScheduleConfig& s = job.schedule;
  for (const char* key : {"scheduler.params.cycle_min_lr", "scheduler.params.cycle_max_lr"})
    if (!v.given(key)) diagnostics.error(key, "OneCycle needs it: give a learning rate");
  s.cycle_min_lr = v.real("scheduler.params.cycle_min_lr", 0, "missing");
  s.cycle_max_lr = v.real("scheduler.params.cycle_max_lr", 0, "missing");
  overrule_lr(job, v, diagnostics, facts, "scheduler.params.cycle_max_lr", s.cycle_max_lr);
  s.decay_lr_rate = v.real("scheduler.params.decay_lr_rate");
  s.cycle_first_step_size = v.integer("scheduler.params.cycle_first_step_size");
  s.cycle_second_step_size = v.integer("scheduler.params.cycle_second_step_size",
                                       s.cycle_first_step_size, "cycle_first_step_size");
  s.cycle_first_stair_count = v.integer("scheduler.params.cycle_first_stair_count");
  s.cycle_second_stair_count = v.integer("scheduler.params.cycle_second_stair_count",
                                         s.cycle_first_stair_count, "cycle_first_stair_count");
  s.decay_step_size = v.integer("scheduler.params.decay_step_size");
  s.cycle_momentum = v.flag("scheduler.params.cycle_momentum");
  const Member* type = v.given("optimizer.type");
  const OptimizerType* known = type ? optimizer_type(type->value.text) : nullptr;
  if (s.cycle_momentum && known &&
      (!known->fixed_betas.empty() || !find_key(facts, "optimizer.params.betas"))) {
    const std::string why = known->fixed_betas.empty() ? type->value.text + " has no betas to move"
                                                       : std::string(known->fixed_betas);
    s.cycle_momentum = false;
    diagnostics.no_effect("scheduler.params.cycle_momentum", why);
    diagnostics.warning("scheduler.params.cycle_momentum", "has no effect: " + why);
  }
  if (s.cycle_momentum && s.last_batch_iteration < 0 && v.given("optimizer.params.betas")) {
    constexpr std::string_view key = "optimizer.params.betas",
                               why = "cycle_momentum moves the betas";
    diagnostics.no_effect(key, std::string(why));
    diagnostics.warning(key, fmt::format("has no effect: OneCycle's {}", why));
  }
  s.cycle_min_mom = v.real("scheduler.params.cycle_min_mom");
  s.cycle_max_mom = v.real("scheduler.params.cycle_max_mom");
  s.decay_mom_rate = v.real("scheduler.params.decay_mom_rate");
}

void solve_total(Job& job, Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view key = "scheduler.params.total_num_steps";
  ScheduleConfig& s = job.schedule;
  if (!v.given(key) && !v.is_auto(key))
    diagnostics.error(key, "missing: give the number of steps, or \"auto\" for dstrain.steps");
  s.total_num_steps = v.integer(key, std::max<int64_t>(1, job.steps), "dstrain.steps");
  if (s.total_num_steps < s.warmup_num_steps &&
      !diagnostics.stopped({key, "scheduler.params.warmup_num_steps", "dstrain.steps"}))
    diagnostics.warning(key, fmt::format("{} is less than warmup_num_steps {}", s.total_num_steps,
                                         s.warmup_num_steps));
}

// Returns the schedule's iteration in the last step of the run.
double last_iteration(const Job& job) {
  return static_cast<double>(job.schedule.last_batch_iteration) + static_cast<double>(job.steps) -
         1;
}

// Reports what the schedule would make of beta1 or of a learning rate within the run's steps that the keys themselves
// do not allow.
void check_range(const Job& job, Diagnostics& diagnostics, const Facts& facts) {
  constexpr std::string_view steps = "dstrain.steps",
                             from = "scheduler.params.last_batch_iteration";
  constexpr double most = std::numeric_limits<float>::max();
  const ScheduleConfig& s = job.schedule;
  const auto beyond = [&](std::string_view key, double rate, Diagnostics::Keys of) {
    if (rate > most)
      diagnostics.error(key,
                        fmt::format("takes the learning rate to {} within the {}, and fp32 ends at "
                                    "{}: use less",
                                    json_text(rate), counted(job.steps, "step"), json_text(most)),
                        of);
  };
  if (s.kind == ScheduleKind::lr_range_test) {
    const double intervals = (last_iteration(job) + 1) / static_cast<double>(s.range_step_size);
    beyond("scheduler.params.lr_range_test_step_rate",
           s.range_min_lr * (1 + s.range_step_rate * intervals),
           {steps, from, "scheduler.params.lr_range_test_min_lr",
            "scheduler.params.lr_range_test_step_size"});
  } else if (s.kind == ScheduleKind::warmup_cosine) {
    const OptimizerConfig& o = job.optimizer;
    const bool has_other = find_key(facts, "optimizer.params.adam_lr") != nullptr;
    const double lr = has_other ? std::max(o.lr, o.adam_lr) : o.lr;
    beyond("scheduler.params.warmup_min_ratio", lr * s.warmup_min_ratio, {"optimizer.params.lr"});
    beyond("scheduler.params.cos_min_ratio", lr * s.cos_min_ratio, {"optimizer.params.lr"});
  } else if (s.kind == ScheduleKind::one_cycle && s.cycle_momentum && s.decay_step_size > 0) {
    // The factor by which beta1 has grown k iterations after the cycle is 1 + growth * k.
    const double growth = s.decay_mom_rate / static_cast<double>(s.decay_step_size);
    const double cycle = static_cast<double>(s.cycle_first_step_size + s.cycle_second_step_size);
    const auto reaches_one = [&](double k) {
      return static_cast<float>(s.cycle_max_mom * (1 + growth * k)) >= 1;
    };
    double below = 0, first = last_iteration(job) - cycle + 1;
    if (first < 1 || !reaches_one(first)) return;
    while (first - below > 1) {
      const double middle = std::floor((below + first) / 2);
      (reaches_one(middle) ? first : below) = middle;
    }
    diagnostics.error(
        "scheduler.params.decay_mom_rate",
        fmt::format("by DeepSpeed's formula beta1 grows and is 1 at step {:.0f} of {}, where "
                    "training diverges: use 0, or fewer steps",
                    first + cycle - static_cast<double>(s.last_batch_iteration), job.steps),
        {steps, from, "scheduler.params.cycle_max_mom", "scheduler.params.decay_step_size",
         "scheduler.params.cycle_first_step_size", "scheduler.params.cycle_second_step_size"});
  }
}

// Fills in the kind and the constants of the schedule that is called `name`.
void solve_kind(const std::string& name, Job& job, Values& v, Diagnostics& diagnostics,
                const Facts& facts) {
  ScheduleConfig& s = job.schedule;
  if (name == "LRRangeTest") {
    s.kind = ScheduleKind::lr_range_test;
    s.range_min_lr = v.real("scheduler.params.lr_range_test_min_lr");
    s.range_step_size = v.integer("scheduler.params.lr_range_test_step_size");
    s.range_step_rate = v.real("scheduler.params.lr_range_test_step_rate");
    s.range_staircase = v.flag("scheduler.params.lr_range_test_staircase");
    return overrule_lr(job, v, diagnostics, facts, "scheduler.params.lr_range_test_min_lr",
                       s.range_min_lr);
  }
  if (name == "OneCycle") {
    s.kind = ScheduleKind::one_cycle;
    return solve_one_cycle(job, v, diagnostics, facts);
  }
  s.warmup_num_steps = v.integer("scheduler.params.warmup_num_steps");
  s.warmup_linear = v.text("scheduler.params.warmup_type") == "linear";
  if (name == "WarmupCosineLR") {
    s.kind = ScheduleKind::warmup_cosine;
    s.warmup_min_ratio = v.real("scheduler.params.warmup_min_ratio");
    s.cos_min_ratio = v.real("scheduler.params.cos_min_ratio");
    return solve_total(job, v, diagnostics);
  }
  constexpr std::string_view top = "scheduler.params.warmup_max_lr";
  const auto automatic_top = [&] {
    constexpr std::string_view lr = "optimizer.params.lr";
    const bool own = v.given(lr) != nullptr;
    return v.real(top, own ? job.optimizer.lr : v.automatic(lr), own ? lr : kHuggingFace);
  };
  s.warmup_min_lr = v.real("scheduler.params.warmup_min_lr");
  if (name == "WarmupLR") {
    s.kind = ScheduleKind::warmup;
    const OptimizerConfig& o = job.optimizer;
    const bool two_rates = find_key(facts, "optimizer.params.adam_lr") && o.adam_lr != o.lr;
    if (two_rates && !v.given(top) && !v.is_auto(top)) {
      // As in DeepSpeed, the rate of each half rises to its own.
      s.warmup_max_lr = o.lr;
      s.warmup_max_adam_lr = o.adam_lr;
    } else {
      s.warmup_max_lr = v.is_auto(top) ? automatic_top() : v.real(top, o.lr, "optimizer.params.lr");
    }
  } else {
    s.kind = ScheduleKind::warmup_decay;
    s.warmup_max_lr = v.is_auto(top) ? automatic_top() : v.real(top);
    solve_total(job, v, diagnostics);
  }
  overrule_lr(job, v, diagnostics, facts, top, s.warmup_max_lr);
}

}  // namespace

void solve_schedule(Job& job, Values& v, Diagnostics& diagnostics, const Facts& facts) {
  const Member* section = find(*facts.root, "scheduler");
  if (!section || !section->value.is(Node::Kind::object)) return;
  if (!section->value.member("type"))
    diagnostics.error("scheduler.type",
                      "missing: use WarmupLR, for example, or remove the section");
  if (v.is_auto("scheduler.type")) {
    const std::string constant = "\"auto\" names no schedule: the learning rate is constant";
    diagnostics.no_effect("scheduler.type", constant);
    diagnostics.warning("scheduler.type", constant);
  }
  const Member* type = v.given("scheduler.type");
  if (!type || diagnostics.stopped("scheduler.type")) return;
  v.text("scheduler.type", "", "");
  constexpr std::string_view from = "scheduler.params.last_batch_iteration";
  if (find_key(facts, from)) job.schedule.last_batch_iteration = v.integer(from);
  if (job.schedule.last_batch_iteration >= 0)
    diagnostics.explain(from,
                        "as in DeepSpeed, step 1 has the optimizer's own rates, step 2 those of "
                        "the next iteration");
  solve_kind(type->value.text, job, v, diagnostics, facts);
  check_range(job, diagnostics, facts);
}

}  // namespace dstrain
