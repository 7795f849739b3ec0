// 1-bit Adam: the bits of AdamW until its second moment is frozen; then momenta that travel as signs, whose every
// step is compared with the definition. mpirun starts this program on 1 to 4 ranks.
#include <catch2/catch.hpp>

#include "runtime/comm/world.h"
#include "tests/engine/stages/sign_runs.h"

using namespace dstrain;

namespace {

constexpr int64_t kFreeze = 3;

// A model of odd sizes. The loss scale of fp16 soon grows until it overflows.
Job one_bit_job(int ranks, DType dtype) {
  Job job = pipeline_job(dtype, ranks, 1, 2);
  job.optimizer.kind = OptimizerKind::one_bit_adam;
  job.optimizer.freeze_step = kFreeze;
  job.weight_decay_exclude = {};
  job.gradient_clipping = 0.5;
  job.loss_scale.initial = std::min(job.loss_scale.initial, 0x1p14);
  job.loss_scale.window = 1;
  job.overlap_comm = true;
  return job;
}

// What a rank has of a unit.
struct UnitState {
  Values master, m, v, worker_error, owner_error;
};

UnitState state_of(const RankRun& run, const Unit& unit) {
  return {run.master(unit), run.read("exp_avg:" + unit.name), run.read("exp_avg_sq:" + unit.name),
          run.read("worker_error:" + unit.name), run.read("owner_error:" + unit.name)};
}

// Does a step by the definition: `states` of all ranks, whose `gradients` are those of their own samples.
void model_step(const Job& job, const StepState& s, const std::vector<Values>& gradients,
                std::vector<UnitState>& states) {
  const size_t ranks = states.size(), n = gradients[0].size();
  const auto rest1 = static_cast<float>(1.0 - s.beta1);
  const float share = 1.0f / static_cast<float>(ranks);
  std::vector<Values> momenta(ranks, Values(n, 0));
  for (size_t r = 0; r < ranks; ++r)
    for (size_t i = 0; i < n; ++i) {
      const float old = states[r].m[i] * share, g = gradients[r][i] * s.grad_scale;
      if (states[r].v[i] > 0) momenta[r][i] = std::fma(rest1, g - old, old);
    }
  Values momentum = momenta[0];
  if (ranks > 1) {
    std::vector<Values*> worker, owner;
    for (UnitState& state : states) {
      worker.push_back(&state.worker_error);
      owner.push_back(&state.owner_error);
    }
    momentum = exchange(momenta, worker, owner);
  }
  const auto eps = static_cast<float>(job.optimizer.eps),
             decay = static_cast<float>(job.optimizer.weight_decay);
  for (UnitState& state : states) {
    state.m = momentum;
    for (size_t i = 0; i < n; ++i) {
      float& p = state.master[i];
      const float moved = state.v[i] > 0 ? momentum[i] / (std::sqrt(state.v[i]) + eps) : 0;
      p = std::fma(-s.lr, std::fma(decay, p, moved), p);
    }
  }
}

}  // namespace

TEST_CASE("until it freezes, 1-bit Adam has the bits of AdamW without bias corrections") {
  check_until_frozen(one_bit_job, OptimizerKind::adam, kFreeze);
}

TEST_CASE("once it is frozen, every step of 1-bit Adam is that of the definition, bit for bit") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  const auto rank = static_cast<size_t>(world->rank());
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const DType held : {DType::f32, dtype}) {
      Job job = one_bit_job(world->size(), dtype);
      job.grad_dtype = held;
      INFO(describe(job));
      RankRun run(job, data, *world);
      while (run.state().applied_steps < kFreeze) run.step();
      int skipped = 0;
      for (int step = 0; step < (dtype == DType::f16 ? 10 : 5); ++step) {
        std::vector<std::vector<UnitState>> expected;
        const std::vector<Unit>& units = run.plan().program.units;
        for (const Unit& unit : units) {
          const UnitState mine = state_of(run, unit);
          auto& all = expected.emplace_back(static_cast<size_t>(world->size()), mine);
          if (world->size() == 1) continue;
          const auto worker = run.of_all(mine.worker_error), owner = run.of_all(mine.owner_error);
          for (size_t r = 0; r < all.size(); ++r) {
            all[r].worker_error = worker[r];
            all[r].owner_error = owner[r];
          }
        }
        CHECK(run.step() == wire_bytes(run.plan()));
        skipped += run.state().skip;
        int64_t wrong = 0, moved = 0;
        for (size_t u = 0; u < units.size(); ++u) {
          const auto gradients = run.of_all(run.read("grads:" + units[u].name));
          const Values before = expected[u][rank].master;
          if (!run.state().skip) model_step(job, run.state(), gradients, expected[u]);
          const UnitState model = expected[u][rank], mine = state_of(run, units[u]);
          moved += different(before, mine.master);
          wrong += different(model.m, mine.m) + different(model.v, mine.v) +
                   different(model.worker_error, mine.worker_error) +
                   different(model.owner_error, mine.owner_error) +
                   different(model.master, mine.master);
        }
        CHECK(wrong == 0);
        CHECK((moved == 0) == (run.state().skip != 0));
      }
      CHECK((skipped > 0) == (dtype == DType::f16));
    }
}

TEST_CASE("1-bit Adam: what runs beside computation and how often ranks add change no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Job job = one_bit_job(world->size(), dtype);
    const RunResult expected = run_steps(job, data, *world, kSteps);
    CHECK(expected.sent_per_step == expected.planned_to_send);
    job.overlap_comm = false;
    CHECK(difference(expected, run_steps(job, data, *world, kSteps), *world) == "");
    CHECK(difference(expected, run_steps(job, data, *world, kSteps, 2), *world) == "");
    job.recompute = {RecomputeMode::interval, 1};
    CHECK(difference(expected, run_steps(job, data, *world, kSteps), *world) == "");
  }
}

TEST_CASE("1-bit Adam: stage 1 has the bits of stage 0, until it freezes and after") {
  check_stage_1(one_bit_job, kFreeze);
}

TEST_CASE("1-bit Adam at stage 1: each step sends what its plan says, one of them the momentum") {
  check_gathers(one_bit_job, kFreeze, "whole_exp_avg:");
}
