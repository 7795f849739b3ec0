#include "runtime/optim/lr_schedule.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>
#include <vector>

namespace dstrain {
namespace {

ScheduleConfig schedule_of(ScheduleKind kind) {
  ScheduleConfig s;
  s.kind = kind;
  return s;
}

double lr(const ScheduleConfig& s, int64_t applied, double optimizer_lr = 1e-3) {
  OptimizerConfig o;
  o.lr = optimizer_lr;
  return rate_at(s, o, applied).lr;
}

Approx close(double value) {
  return Approx(value).epsilon(1e-12).margin(1e-300);
}

TEST_CASE("without a schedule every step uses the optimizer's own lr and betas") {
  OptimizerConfig o;
  o.lr = 3e-4;
  o.beta1 = 0.85;
  o.beta2 = 0.95;
  for (int64_t applied : {0, 1, 5, 1'000'000}) {
    const Rate rate = rate_at(ScheduleConfig{}, o, applied);
    CHECK(rate.lr == 3e-4);
    CHECK(rate.beta1 == 0.85);
    CHECK(rate.beta2 == 0.95);
  }
}

TEST_CASE("WarmupLR follows DeepSpeed's table, one step late") {
  ScheduleConfig s = schedule_of(ScheduleKind::warmup);
  s.warmup_max_lr = 0.1;
  s.warmup_num_steps = 10;
  CHECK(lr(s, 0) == 0.0);  // the initial value, warmup_min_lr
  const std::vector<double> table = {0,       .030103, .047712, .060206, .069897,
                                     .077815, .08451,  .090309, .095424, .1};
  for (size_t i = 0; i < table.size(); ++i) {
    CAPTURE(i);
    CHECK(lr(s, static_cast<int64_t>(i) + 1) == Approx(table[i]).margin(5e-7));
  }
  CHECK(lr(s, 11) == 0.1);
  CHECK(lr(s, 1'000'000) == 0.1);
}

TEST_CASE("WarmupLR starts from its minimum and ignores the optimizer's lr") {
  ScheduleConfig s = schedule_of(ScheduleKind::warmup);
  s.warmup_min_lr = 0.02;
  s.warmup_max_lr = 0.1;
  s.warmup_num_steps = 4;
  CHECK(lr(s, 0, 7.0) == 0.02);
  CHECK(lr(s, 1, 7.0) == 0.02);
  CHECK(lr(s, 2, 7.0) == close(0.02 + 0.08 * std::log(2.0) / std::log(4.0)));
  CHECK(lr(s, 4, 7.0) == close(0.1));
}

TEST_CASE("a linear warm-up counts from zero and jumps to the maximum at its end") {
  ScheduleConfig s = schedule_of(ScheduleKind::warmup);
  s.warmup_max_lr = 0.1;
  s.warmup_num_steps = 10;
  s.warmup_linear = true;
  for (int64_t i = 0; i < 10; ++i) CHECK(lr(s, i + 1) == close(0.01 * static_cast<double>(i)));
  CHECK(lr(s, 11) == close(0.1));
}

TEST_CASE("a warm-up of one step counts as two") {
  ScheduleConfig s = schedule_of(ScheduleKind::warmup);
  s.warmup_max_lr = 1;
  s.warmup_num_steps = 1;
  CHECK(lr(s, 1) == 0.0);
  CHECK(lr(s, 2) == close(1.0));
  s.warmup_linear = true;
  CHECK(lr(s, 2) == close(0.5));
  CHECK(lr(s, 3) == close(1.0));
}

TEST_CASE("WarmupDecayLR falls linearly to its minimum and stays there") {
  ScheduleConfig s = schedule_of(ScheduleKind::warmup_decay);
  s.warmup_min_lr = 0.01;
  s.warmup_max_lr = 0.11;
  s.warmup_num_steps = 5;
  s.total_num_steps = 25;
  s.warmup_linear = true;
  CHECK(lr(s, 0) == 0.01);
  CHECK(lr(s, 4) == close(0.01 + 0.1 * 3 / 5.0));  // i = 3
  CHECK(lr(s, 6) == close(0.11));                  // i = 5: (25 - 5) / 20
  CHECK(lr(s, 7) == close(0.01 + 0.1 * 19 / 20.0));
  CHECK(lr(s, 16) == close(0.06));  // i = 15: half way
  CHECK(lr(s, 26) == close(0.01));
  CHECK(lr(s, 1000) == close(0.01));
}

TEST_CASE(
    "WarmupDecayLR with fewer steps in all than in the warm-up goes straight to its minimum") {
  ScheduleConfig s = schedule_of(ScheduleKind::warmup_decay);
  s.warmup_max_lr = 0.1;
  s.warmup_num_steps = 10;
  s.total_num_steps = 4;
  CHECK(lr(s, 10) == close(0.1));
  CHECK(lr(s, 11) == 0.0);
}

TEST_CASE("WarmupCosineLR scales the optimizer's lr") {
  ScheduleConfig s = schedule_of(ScheduleKind::warmup_cosine);
  s.warmup_num_steps = 4;
  s.total_num_steps = 12;
  s.warmup_min_ratio = 0.1;
  s.cos_min_ratio = 0.2;
  s.warmup_linear = true;
  const double base = 0.5;
  CHECK(lr(s, 0, base) == 0.0);                 // the initial value is 0 whatever the ratio
  CHECK(lr(s, 1, base) == close(base * 0.1));   // i = 0
  CHECK(lr(s, 3, base) == close(base * 0.55));  // i = 2: 0.1 + 0.9 / 2
  for (int64_t i = 4; i < 12; ++i) {
    const double f = static_cast<double>(i - 4 + 1) / 8.0;
    const double ratio = 0.2 + 0.8 * (1 + std::cos(std::numbers::pi * f)) / 2;
    CHECK(lr(s, i + 1, base) == close(base * ratio));
  }
  CHECK(lr(s, 12, base) == close(base * 0.2));  // i = 11: f = 1
  CHECK(lr(s, 500, base) == close(base * 0.2));
}

TEST_CASE("WarmupCosineLR warms up by logarithms unless told otherwise") {
  ScheduleConfig s = schedule_of(ScheduleKind::warmup_cosine);
  s.warmup_num_steps = 8;
  s.total_num_steps = 100;
  CHECK(lr(s, 4, 1.0) == close(std::log(4.0) / std::log(8.0)));
}

TEST_CASE("LRRangeTest grows from its minimum, smoothly or in stairs") {
  ScheduleConfig s = schedule_of(ScheduleKind::lr_range_test);
  s.range_min_lr = 1e-4;
  s.range_step_size = 5;
  s.range_step_rate = 2;
  for (int64_t applied : {0, 1, 3, 5, 7, 50}) {
    CHECK(lr(s, applied) == close(1e-4 * (1 + 2 * static_cast<double>(applied) / 5)));
  }
  s.range_staircase = true;
  CHECK(lr(s, 0) == 1e-4);
  CHECK(lr(s, 4) == 1e-4);
  CHECK(lr(s, 5) == close(3e-4));
  CHECK(lr(s, 9) == close(3e-4));
  CHECK(lr(s, 10) == close(5e-4));
}

ScheduleConfig cycle() {
  ScheduleConfig s = schedule_of(ScheduleKind::one_cycle);
  s.cycle_min_lr = 1;
  s.cycle_max_lr = 11;
  s.cycle_first_step_size = 4;
  s.cycle_second_step_size = 6;
  return s;
}

TEST_CASE("OneCycle climbs, descends, and cycles beta1 the other way") {
  const ScheduleConfig s = cycle();
  const OptimizerConfig o;
  const std::vector<double> heights = {0.25,    0.5,     0.75,    1.0,     5 / 6.0,
                                       4 / 6.0, 3 / 6.0, 2 / 6.0, 1 / 6.0, 0.0};
  for (size_t i = 0; i < heights.size(); ++i) {
    CAPTURE(i);
    const Rate rate = rate_at(s, o, static_cast<int64_t>(i) + 1);
    CHECK(rate.lr == close(1 + 10 * heights[i]));
    CHECK(rate.beta1 == close(0.9 - 0.1 * heights[i]));
    CHECK(rate.beta2 == 0.99);
  }
}

TEST_CASE("OneCycle begins at the lowest lr with the lowest beta1") {
  const Rate rate = rate_at(cycle(), OptimizerConfig{}, 0);
  CHECK(rate.lr == 1.0);
  CHECK(rate.beta1 == 0.8);
  CHECK(rate.beta2 == 0.99);
}

TEST_CASE("OneCycle after the cycle stays at the minimum unless a decay is asked for") {
  ScheduleConfig s = cycle();
  const OptimizerConfig o;
  CHECK(rate_at(s, o, 11).lr == 1.0);
  CHECK(rate_at(s, o, 500).beta1 == 0.9);
  s.decay_lr_rate = 0.5;
  s.decay_mom_rate = 0.01;
  CHECK(rate_at(s, o, 500).lr == 1.0);  // no decay_step_size: no decay
  s.decay_step_size = 3;
  for (int64_t k : {1, 2, 3, 30}) {
    const double intervals = static_cast<double>(k) / 3;
    const Rate rate = rate_at(s, o, 10 + k);  // i = 9 + k, k = i - 10 + 1
    CHECK(rate.lr == close(1 / (1 + 0.5 * intervals)));
    CHECK(rate.beta1 == close(0.9 * (1 + 0.01 * intervals)));
  }
  s.decay_lr_rate = 0;
  CHECK(rate_at(s, o, 500).lr == 1.0);
}

TEST_CASE("OneCycle in stairs rounds the height down") {
  ScheduleConfig s = cycle();
  s.cycle_first_stair_count = 2;
  s.cycle_second_stair_count = 3;
  const std::vector<double> heights = {0,       0.5,     0.5,     1.0, 2 / 3.0,
                                       2 / 3.0, 1 / 3.0, 1 / 3.0, 0.0, 0.0};
  for (size_t i = 0; i < heights.size(); ++i) {
    CAPTURE(i);
    CHECK(lr(s, static_cast<int64_t>(i) + 1) == close(1 + 10 * heights[i]));
  }
}

TEST_CASE("OneCycle without a second half drops at its end") {
  ScheduleConfig s = cycle();
  s.cycle_second_step_size = 0;
  CHECK(lr(s, 3) == close(1 + 10 * 0.75));
  CHECK(lr(s, 4) == close(1.0));
  CHECK(lr(s, 5) == close(1.0));
}

TEST_CASE("OneCycle leaves the betas alone without cycle_momentum, and always under SGD") {
  ScheduleConfig s = cycle();
  s.cycle_momentum = false;
  const Rate plain = rate_at(s, OptimizerConfig{}, 3);
  CHECK(plain.lr == close(1 + 10 * 0.75));
  CHECK(plain.beta1 == 0.9);
  CHECK(plain.beta2 == 0.999);
  s.cycle_momentum = true;
  OptimizerConfig sgd;
  sgd.kind = OptimizerKind::sgd;
  CHECK(rate_at(s, sgd, 3).beta1 == 0.9);
  CHECK(rate_at(s, sgd, 3).beta2 == 0.999);
}

TEST_CASE("a schedule that begins later has the optimizer's own rates first, as in DeepSpeed") {
  OptimizerConfig o;
  o.lr = 7;
  o.beta1 = 0.5;
  o.beta2 = 0.75;
  for (const ScheduleKind kind :
       {ScheduleKind::lr_range_test, ScheduleKind::one_cycle, ScheduleKind::warmup,
        ScheduleKind::warmup_decay, ScheduleKind::warmup_cosine}) {
    CAPTURE(kind);
    ScheduleConfig from_start = cycle();
    from_start.kind = kind;
    from_start.warmup_num_steps = 4;
    from_start.total_num_steps = 40;
    ScheduleConfig later = from_start;
    later.last_batch_iteration = 0;
    CHECK(rate_at(later, o, 0).lr == 7);
    CHECK(rate_at(later, o, 0).beta1 == 0.5);
    CHECK(rate_at(later, o, 0).beta2 == 0.75);
    later.last_batch_iteration = 5;
    // Step 2 has iteration 6, which a schedule from its start has in step 8.
    for (const int64_t applied : {1, 2, 30}) {
      CHECK(rate_at(later, o, applied).lr == rate_at(from_start, o, applied + 6).lr);
      CHECK(rate_at(later, o, applied).beta1 == rate_at(from_start, o, applied + 6).beta1);
    }
  }
}

TEST_CASE("Adagrad's lr_decay divides the rate by the updates before, as torch.optim.Adagrad's") {
  OptimizerConfig o;
  o.kind = OptimizerKind::adagrad;
  o.lr = 0.5;
  o.lr_decay = 0.25;
  CHECK(rate_at({}, o, 0).lr == 0.5);
  CHECK(rate_at({}, o, 1).lr == close(0.5 / 1.25));
  CHECK(rate_at({}, o, 4).lr == 0.25);
  ScheduleConfig s = schedule_of(ScheduleKind::warmup);
  s.warmup_max_lr = 0.1;
  CHECK(rate_at(s, o, 5000).lr == close(0.1 / (1 + 5000 * 0.25)));
}

TEST_CASE("OneCycle's stairs are exact where the product of step and stairs leaves 64 bits") {
  ScheduleConfig s = cycle();
  s.cycle_first_step_size = s.cycle_second_step_size = int64_t{1} << 52;
  s.cycle_first_stair_count = s.cycle_second_stair_count = int64_t{1} << 52;
  CHECK(lr(s, int64_t{1} << 51) == close(1 + 10 * 0.5));
}

TEST_CASE("Muon has a second learning rate, which a schedule scales or overrules as the first") {
  OptimizerConfig o;
  o.kind = OptimizerKind::muon;
  o.lr = 0.02;
  o.adam_lr = 3e-4;
  const Rate constant = rate_at({}, o, 5);
  CHECK(constant.lr == 0.02);
  CHECK(constant.adam_lr == 3e-4);
  ScheduleConfig cosine;
  cosine.kind = ScheduleKind::warmup_cosine;
  cosine.warmup_num_steps = 4;
  cosine.total_num_steps = 20;
  const Rate scaled = rate_at(cosine, o, 12);
  CHECK(scaled.lr < 0.02);
  CHECK(scaled.adam_lr / scaled.lr == close(3e-4 / 0.02));
  ScheduleConfig warmup;
  warmup.kind = ScheduleKind::warmup;
  warmup.warmup_max_lr = 0.5;
  CHECK(rate_at(warmup, o, 5000).lr == 0.5);
  CHECK(rate_at(warmup, o, 5000).adam_lr == 0.5);
  warmup.warmup_linear = true;
  warmup.warmup_max_adam_lr = 0.25;
  CHECK(rate_at(warmup, o, 0).adam_lr == 0);
  CHECK(rate_at(warmup, o, 501).lr == close(0.25));
  CHECK(rate_at(warmup, o, 501).adam_lr == close(0.125));
  CHECK(rate_at(warmup, o, 5000).lr == 0.5);
  CHECK(rate_at(warmup, o, 5000).adam_lr == 0.25);
  CHECK(rate_at(cycle(), o, 3).adam_lr == rate_at(cycle(), o, 3).lr);
  CHECK(rate_at(cycle(), o, 3).beta1 == o.beta1);
  o.kind = OptimizerKind::adam;
  CHECK(rate_at({}, o, 5).adam_lr == 0.02);
}

}  // namespace
}  // namespace dstrain
