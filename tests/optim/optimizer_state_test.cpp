#include "runtime/optim/optimizer_state.h"

#include <catch2/catch.hpp>

#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/optimizers/one_bit.h"

namespace dstrain {
namespace {

// Returns the step state of a job's optimizer after some updates.
StepState state_of(const Job& job, int64_t applied_steps) {
  StepState state;
  state.applied_steps = applied_steps;
  set_optimizer_state(job, state);
  return state;
}

Job adam_job(double beta1, double beta2) {
  Job job;
  job.optimizer.beta1 = beta1;
  job.optimizer.beta2 = beta2;
  return job;
}

TEST_CASE("at the first update the corrections cancel the moments' own factors exactly") {
  const StepState state = state_of(adam_job(0.9, 0.999), 0);
  CHECK(state.bias_correction1 == static_cast<float>(1.0 - 0.9));
  CHECK(state.bias_correction2 == static_cast<float>(1.0 - 0.999));
}

TEST_CASE("the corrections are those of update number applied + 1") {
  const StepState state = state_of(adam_job(0.5, 0.75), 2);
  CHECK(state.bias_correction1 == 1.0f - 0.125f);
  CHECK(state.bias_correction2 == 1.0f - 0.421875f);
  const StepState late = state_of(adam_job(0.9, 0.999), 1'000'000);
  CHECK(late.bias_correction1 == 1.0f);
  CHECK(late.bias_correction2 == 1.0f);
}

TEST_CASE("rates, betas and corrections are those of the schedule") {
  Job job = adam_job(0.1, 0.2);
  job.optimizer.lr = 7;
  job.schedule = {.kind = ScheduleKind::one_cycle, .cycle_min_lr = 0.25, .cycle_max_lr = 0.5};
  job.schedule.cycle_momentum = true;
  job.schedule.cycle_min_mom = 0.5;
  job.schedule.cycle_max_mom = 0.75;
  const StepState state = state_of(job, 0);
  CHECK(state.lr == 0.25f);
  CHECK(state.adam_lr == 0.25f);
  CHECK(state.beta1 == 0.5);
  CHECK(state.beta2 == 0.99);
  CHECK(state.bias_correction1 == 0.5f);
  CHECK(state.bias_correction2 == static_cast<float>(1 - 0.99));
}

TEST_CASE("a beta of zero corrects nothing") {
  CHECK(state_of(adam_job(0, 0), 0).bias_correction1 == 1.0f);
}

TEST_CASE("no bias correction, and SGD, leave both divisors at one") {
  Job job;
  job.optimizer.bias_correction = false;
  CHECK(state_of(job, 0).bias_correction1 == 1.0f);
  CHECK(state_of(job, 0).bias_correction2 == 1.0f);
  Job sgd;
  sgd.optimizer.kind = OptimizerKind::sgd;
  CHECK(state_of(sgd, 0).bias_correction2 == 1.0f);
}

TEST_CASE("Muon has a rate for the parameters that it leaves to Adam") {
  Job job;
  job.optimizer = {.kind = OptimizerKind::muon, .lr = 0.5, .adam_lr = 0.25};
  CHECK(state_of(job, 0).lr == 0.5f);
  CHECK(state_of(job, 0).adam_lr == 0.25f);
}

TEST_CASE("ZeroOneAdam: what is lost of gradients counts as 0 from the first local step on") {
  Job job;
  job.optimizer.kind = OptimizerKind::zero_one_adam;
  job.optimizer.lr = 0.5;
  job.optimizer.zero_one = {.var_freeze_step = 4, .local_step_scaler = 1, .local_step_clipper = 4};
  for (int64_t applied = 0; applied < 9; ++applied)
    CHECK(state_of(job, applied).drop_errors == (applied == 4));
  CHECK(state_of(job, 3).local_lr == 0);
  // Local step 1 synchronises, at intervals of 2 and 4 then: 2, 4, 8.
  CHECK(state_of(job, 4 + 7).local_lr == 3 * 0.5);
  job.optimizer.kind = OptimizerKind::one_bit_adam;
  CHECK(state_of(job, 4).drop_errors == 0);
}

TEST_CASE("0/1 Adam: the learning rates of local steps that are not synchronised") {
  Job job;
  job.optimizer.kind = OptimizerKind::zero_one_adam;
  job.optimizer.zero_one = {.var_freeze_step = 2, .local_step_scaler = 1, .local_step_clipper = 8};
  job.schedule = {.kind = ScheduleKind::warmup,
                  .warmup_max_lr = 0.1,
                  .warmup_num_steps = 100,
                  .warmup_linear = true};
  const auto rate = [&](int64_t applied) {
    return static_cast<double>(
        static_cast<float>(rate_at(job.schedule, job.optimizer, applied).lr));
  };
  // Local step 8 synchronises, and 16.
  REQUIRE(zero_one_step(job.optimizer.zero_one, 2 + 15) == StepKind::regular);
  CHECK(state_of(job, 2 + 8).local_lr == 0);
  CHECK(state_of(job, 2 + 11).local_lr == rate(10) + rate(11) + rate(12));
  CHECK(state_of(job, 2 + 11).local_lr > 0);
}

}  // namespace
}  // namespace dstrain
