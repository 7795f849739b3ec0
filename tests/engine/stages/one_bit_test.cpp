// Optimizers whose ranks send signs: the bits of optimizers that add gradients until the second moment is frozen; then
// steps that are each compared with their definition. mpirun starts this program on 1 to 4 ranks.
#include <catch2/catch.hpp>

#include "runtime/comm/world.h"
#include "runtime/optim/lr_schedule.h"
#include "tests/engine/stages/sign_models.h"
#include "tests/support/distance.h"

using namespace dstrain;

namespace {

constexpr int64_t kFreeze = 3;
// Updates 1, 2 and 4 have whole gradients, 3 and 5 signs; 6, 7, 9 and 11 synchronise.
constexpr ZeroOneConfig kUpdatePlan{
    .var_freeze_step = 5, .var_update_scaler = 2, .local_step_scaler = 2, .local_step_clipper = 3};
constexpr int64_t kUpdates = 13;

// An optimizer, what it is until it freezes, the buffer of a unit that ranks have whole once they have gathered the
// momentum, and how many updates its steps of all kinds take.
struct SignOptimizer {
  OptimizerKind kind, plain;
  const char* whole;
  int64_t updates;
};
constexpr SignOptimizer kAdam{OptimizerKind::one_bit_adam, OptimizerKind::adam,
                              "whole_exp_avg:", kSteps},
    kLamb{OptimizerKind::one_bit_lamb, OptimizerKind::lamb, "scaled_momentum:", kSteps},
    kZeroOne{OptimizerKind::zero_one_adam, OptimizerKind::adam, nullptr, kUpdates};

// A model of odd sizes, of which the biases do not decay with 1-bit Lamb. The loss scale of fp16 soon grows until it
// overflows.
Job job_of(const SignOptimizer& optimizer, int ranks, DType dtype) {
  Job job = pipeline_job(dtype, ranks, 1, 2);
  job.optimizer.kind = optimizer.kind;
  job.optimizer.freeze_step = kFreeze;
  job.optimizer.zero_one = kUpdatePlan;
  job.weight_decay_exclude = {};
  if (optimizer.kind == OptimizerKind::one_bit_lamb) {
    job.optimizer.weight_decay = 0.1;
    job.optimizer.one_bit_lamb = {
        .coeff_beta = 0.5, .factor_max = 1.5, .factor_min = 0.75, .factor_threshold = 0.125};
    job.weight_decay_exclude = {"*.bias"};
  }
  if (optimizer.kind == OptimizerKind::zero_one_adam)
    job.schedule = {.kind = ScheduleKind::warmup,
                    .warmup_min_lr = 1e-3,
                    .warmup_max_lr = 2e-3,
                    .warmup_num_steps = 20,
                    .warmup_linear = true};
  job.gradient_clipping = 0.5;
  job.loss_scale.initial = std::min(job.loss_scale.initial, 0x1p14);
  job.loss_scale.window = 1;
  job.overlap_comm = true;
  return job;
}

// Returns the largest difference, relative to the largest value.
double distance(const Values& a, const Values& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  const double most = largest_magnitude(a), apart = largest_distance(a, b);
  return most > 0 ? apart / most : apart;
}

// Does the step of a kind by the definition. `rates`: of the local steps before it that are not synchronised.
void model_step(const SignOptimizer& optimizer, const StepState& s, StepKind kind, double rates,
                bool drop_errors, SignModel& model) {
  const bool local = kind == StepKind::local || kind == StepKind::regular;
  if (optimizer.kind == OptimizerKind::zero_one_adam && local) model.begin_local(rates);
  if (s.skip) return;
  if (optimizer.kind == OptimizerKind::one_bit_adam) return model.one_bit_adam();
  if (optimizer.kind == OptimizerKind::one_bit_lamb) return model.one_bit_lamb();
  if (kind == StepKind::gradient_signs) return model.signs_of_gradients();
  model.local_step();
  if (kind == StepKind::regular) model.synchronise(rates + static_cast<double>(s.lr), drop_errors);
}

// Compares the steps of an optimizer that send no whole gradients with the definition.
void check_steps(const SignOptimizer& optimizer, DType dtype, DType held, Communicator& world) {
  const RandomDataset data(13);
  Job job = job_of(optimizer, world.size(), dtype);
  job.grad_dtype = held;
  INFO(describe(job));
  RankRun run(job, data, world);
  const auto rank = static_cast<size_t>(world.rank());
  const bool is_lamb = optimizer.kind == OptimizerKind::one_bit_lamb;
  int skipped = 0;
  double rates = 0;
  // In so many updates a loss scale overflows.
  const int64_t updates = dtype == DType::f16 ? kUpdates : optimizer.updates;
  for (int64_t steps = 0; run.state().applied_steps < updates; ++steps) {
    REQUIRE(steps < 30);
    const int64_t applied = run.state().applied_steps;
    const StepKind kind = kind_of_step(job, applied, StepKind::regular);
    const std::vector<Unit>& units = run.plan().program.units;
    std::vector<std::vector<UnitState>> expected;
    for (const Unit& unit : units) expected.push_back(states_of(run, unit, world.size()));
    CHECK(run.step() == wire_bytes(run.plan(kind)));
    if (kind == StepKind::whole_gradients) continue;
    const StepState& s = run.state();
    skipped += s.skip;
    int64_t wrong = 0, moved = 0, apart = 0;
    for (size_t u = 0; u < units.size(); ++u) {
      const Values before = expected[u][rank].master;
      SignModel model(job, s, elements_in(run.plan().program, units[u]),
                      run.of_all(run.read("grads:" + units[u].name)), expected[u]);
      model_step(optimizer, s, kind, rates, applied == kUpdatePlan.var_freeze_step, model);
      const UnitState mine = state_of(run, units[u]);
      moved += different(before, mine.master);
      if (!mine.sum.empty())  // ranks have weights of their own beside the masters
        for (const Values& other : run.of_all(mine.master)) apart += different(other, mine.master);
      for (const auto& [name, values] : kStateBuffers) {
        CAPTURE(name, units[u].name, applied);
        const Values &by_definition = expected[u][rank].*values, &found = mine.*values;
        // Sums of squares are added in another order here.
        if (!is_lamb || s.skip)
          wrong += different(by_definition, found);
        else if (values != &UnitState::params)
          CHECK(distance(by_definition, found) < 1e-5);
      }
    }
    INFO("after " << applied << " updates");
    CHECK(wrong == 0);
    CHECK(apart == 0);
    CHECK((moved == 0) == (s.skip != 0 || kind == StepKind::local));
    if (!s.skip) rates = kind == StepKind::local ? rates + static_cast<double>(s.lr) : 0;
  }
  CHECK((skipped > 0) == (dtype == DType::f16));
}

// Returns how many steps were skipped before the second moment was frozen, and after.
std::pair<int, int> skipped(const RunResult& run) {
  std::pair<int, int> before_and_after;
  int64_t applied = 0;
  for (const int skip : run.skipped) {
    (applied < kFreeze ? before_and_after.first : before_and_after.second) += skip;
    applied += 1 - skip;
  }
  return before_and_after;
}

}  // namespace

TEST_CASE("until they freeze, 1-bit optimizers have the bits of theirs without bias corrections") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const SignOptimizer& optimizer : {kAdam, kLamb, kZeroOne})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
        Job job = job_of(optimizer, world->size(), dtype);
        job.reduce = reduce;
        job.optimizer.freeze_step = kSteps;
        job.optimizer.zero_one.var_update_scaler = job.optimizer.zero_one.var_freeze_step = kSteps;
        Job uncorrected = job;
        uncorrected.optimizer.kind = optimizer.plain;
        uncorrected.optimizer.bias_correction = false;
        INFO(describe(job));
        const RunResult expected = run_steps(uncorrected, data, *world, kSteps);
        CHECK(difference(expected, run_steps(job, data, *world, kSteps), *world) == "");
        if (optimizer.kind == OptimizerKind::zero_one_adam) continue;
        job.optimizer.freeze_step = kFreeze;
        const RunResult frozen = run_steps(job, data, *world, kSteps);
        CHECK(frozen.loss[kFreeze] == expected.loss[kFreeze]);
        CHECK(frozen.loss.back() != expected.loss.back());
        CHECK(frozen.loss.back() == Approx(expected.loss.back()).epsilon(0.05));
      }
}

TEST_CASE("every step that sends no whole gradients is that of the definition") {
  const auto world = make_communicator();
  for (const SignOptimizer& optimizer : {kAdam, kLamb, kZeroOne})
    for (const auto& [dtype, held] :
         {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32},
          std::pair{DType::bf16, DType::bf16}, std::pair{DType::f16, DType::f32},
          std::pair{DType::f16, DType::f16}})
      check_steps(optimizer, dtype, held, *world);
}

TEST_CASE("1-bit Lamb averages the trust ratios of its first steps") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  const Job job = job_of(kLamb, world->size(), DType::f32);
  RankRun run(job, data, *world);
  const std::vector<Unit> units = run.plan().program.units;
  std::vector<Values> expected;
  for (const Unit& unit : units) expected.emplace_back(unit.parameters.size(), 0.0f);
  for (int64_t step = 0; step < kFreeze; ++step) {
    std::vector<Values> before;
    for (const Unit& unit : units) before.push_back(run.master(unit));
    run.step();
    for (size_t u = 0; u < units.size(); ++u) {
      const auto elements = elements_in(run.plan().program, units[u]);
      const UnitState state = state_of(run, units[u]);
      for (size_t k = 0; k < elements.size(); ++k) {
        Values weight, direction;
        for (size_t i = elements[k].begin; i < elements[k].end; ++i) {
          weight.push_back(before[u][i]);
          const double decay = elements[k].decays ? job.optimizer.weight_decay : 0;
          const double root = std::sqrt(static_cast<double>(state.v[i])) + job.optimizer.eps;
          direction.push_back(static_cast<float>(static_cast<double>(state.m[i]) / root +
                                                 decay * static_cast<double>(before[u][i])));
        }
        double trust = 1;
        if (square_sum(weight) > 0 && square_sum(direction) > 0)
          trust = std::clamp(std::sqrt(square_sum(weight) / square_sum(direction)),
                             job.optimizer.min_coeff, job.optimizer.max_coeff);
        if (trust != 1)
          expected[u][k] =
              static_cast<float>(0.5 * static_cast<double>(expected[u][k]) + 0.5 * trust);
      }
    }
  }
  for (size_t u = 0; u < units.size(); ++u)
    CHECK(distance(expected[u], state_of(run, units[u]).average) < 1e-4);
}

TEST_CASE("signs: what runs beside computation and how often ranks add change no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const SignOptimizer& optimizer : {kAdam, kLamb, kZeroOne})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Job job = job_of(optimizer, world->size(), dtype);
      const auto steps = static_cast<int>(optimizer.updates);
      INFO(describe(job));
      const RunResult expected = run_steps(job, data, *world, steps);
      if (optimizer.kind != OptimizerKind::zero_one_adam)  // whose last step is local
        CHECK(expected.sent_per_step == expected.planned_to_send);
      job.overlap_comm = false;
      CHECK(difference(expected, run_steps(job, data, *world, steps), *world) == "");
      CHECK(difference(expected, run_steps(job, data, *world, steps, 2), *world) == "");
      job.recompute = {RecomputeMode::interval, 1};
      CHECK(difference(expected, run_steps(job, data, *world, steps), *world) == "");
    }
}

TEST_CASE("signs: stage 1 has the bits of stage 0, until it freezes and after, in less memory") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const SignOptimizer& optimizer : {kAdam, kLamb})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const auto& [micro_batches, clipping] :
           {std::pair<int64_t, double>{1, 0.5}, std::pair<int64_t, double>{4, 0}}) {
        Job whole = job_of(optimizer, world->size(), dtype);
        whole.batch = {micro_batches * 2 * world->size(), 2, micro_batches};
        whole.gradient_clipping = clipping;
        if (dtype == DType::f16) whole.loss_scale.initial = 0x1p26;
        const int steps = dtype == DType::f16 ? 24 : 7;
        for (const ReduceMode reduce : {ReduceMode::boundary, ReduceMode::micro_batch}) {
          whole.reduce = reduce;
          whole.overlap_comm = reduce == ReduceMode::boundary;
          whole.grad_dtype = reduce == ReduceMode::boundary ? DType::f32 : dtype;
          Job sharded = whole;
          sharded.zero_stage = 1;
          INFO(describe(sharded));
          const RunResult expected = run_steps(whole, data, *world, steps),
                          result = run_steps(sharded, data, *world, steps);
          CHECK(difference(expected, result, *world) == "");
          CHECK((skipped(expected).first > 0) == (dtype == DType::f16));
          CHECK((skipped(expected).second > 0) == (dtype == DType::f16));
          CHECK(result.sent_per_step == result.planned_to_send);
          if (world->size() > 1) CHECK(result.planned_bytes < expected.planned_bytes);
        }
      }
}

TEST_CASE("signs at stage 1: each step sends what its plan says, one of them the momentum") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const SignOptimizer& optimizer : {kAdam, kLamb})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Job job = job_of(optimizer, world->size(), dtype);
      job.zero_stage = 1;
      INFO(describe(job));
      RankRun run(job, data, *world);
      for (int step = 0; step < kSteps; ++step) {
        const int64_t before = run.state().applied_steps, sent = run.step();
        CHECK(sent == wire_bytes(run.newest_plan()));
        const StepKind kind = before < kFreeze                         ? StepKind::whole_gradients
                              : before == kFreeze && world->size() > 1 ? StepKind::whole_momentum
                                                                       : StepKind::regular;
        CHECK(run.newest_plan().kind == kind);
        if (kind == StepKind::whole_gradients || world->size() == 1) continue;
        for (const Unit& unit : run.plan().program.units)
          for (const char* name : {optimizer.whole, "params:"}) {
            const Values mine = run.read(name + unit.name);
            REQUIRE(static_cast<int64_t>(mine.size()) == unit.elements);
            for (const Values& other : run.of_all(mine)) CHECK(different(mine, other) == 0);
          }
      }
    }
}
