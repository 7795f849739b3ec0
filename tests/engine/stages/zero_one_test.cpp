// 0/1 Adam: every step of each kind is compared with the definition. mpirun starts this program on 1 to 4 ranks.
#include <catch2/catch.hpp>

#include "runtime/comm/world.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/zero_one_steps.h"
#include "tests/engine/stages/sign_runs.h"

using namespace dstrain;

namespace {

// Updates 1, 2 and 4 have whole gradients, 3 and 5 signs; 6, 7, 9 and 11 synchronise.
constexpr ZeroOneConfig kUpdatePlan{
    .var_freeze_step = 5, .var_update_scaler = 2, .local_step_scaler = 2, .local_step_clipper = 3};
constexpr int64_t kUpdates = 13;

Job zero_one_job(int ranks, DType dtype) {
  Job job = pipeline_job(dtype, ranks, 1, 2);
  job.optimizer.kind = OptimizerKind::zero_one_adam;
  job.optimizer.zero_one = kUpdatePlan;
  job.weight_decay_exclude = {};
  job.gradient_clipping = 0.5;
  job.loss_scale.initial = std::min(job.loss_scale.initial, 0x1p14);
  job.loss_scale.window = 1;
  job.schedule = {.kind = ScheduleKind::warmup,
                  .warmup_min_lr = 1e-3,
                  .warmup_max_lr = 2e-3,
                  .warmup_num_steps = 20,
                  .warmup_linear = true};
  job.overlap_comm = true;
  return job;
}

// What a rank has of a unit.
struct UnitState {
  Values params, master, m, v, sum, worker_error, owner_error;
};

UnitState state_of(const RankRun& run, const Unit& unit) {
  return {run.read("params:" + unit.name),     run.master(unit),
          run.read("exp_avg:" + unit.name),    run.read("exp_avg_sq:" + unit.name),
          run.read("local_sum:" + unit.name),  run.read("worker_error:" + unit.name),
          run.read("owner_error:" + unit.name)};
}

int64_t differences(const UnitState& a, const UnitState& b) {
  return different(a.params, b.params) + different(a.master, b.master) + different(a.m, b.m) +
         different(a.v, b.v) + different(a.sum, b.sum) + different(a.worker_error, b.worker_error) +
         different(a.owner_error, b.owner_error);
}

// Returns the value rounded to the run's dtype.
float rounded_to(DType dtype, float value) {
  if (dtype == DType::bf16) return to_float(to_bf16(value));
  return dtype == DType::f16 ? to_float(to_f16(value)) : value;
}

// The definition, for one unit of all ranks.
class Model {
 public:
  Model(const Job& job, const StepState& state, std::vector<UnitState>& ranks)
      : s_(state),
        eps_(static_cast<float>(job.optimizer.eps)),
        decay_(static_cast<float>(job.optimizer.weight_decay)),
        dtype_(job.dtype),
        all_(ranks),
        n_(ranks[0].m.size()) {}

  // The weights that a step computes with, from what the local steps before it have moved.
  void begin_local(double rates) {
    for (UnitState& r : all_)
      for (size_t i = 0; i < n_; ++i)
        r.params[i] = rounded_to(dtype_, moved(r.master[i], r.v[i], r.sum[i], rates));
  }
  void signs_of_gradients(const std::vector<Values>& gradients) {
    Values g = gradients[0];
    if (all_.size() == 1)
      for (float& value : g) value *= s_.grad_scale;
    else
      g = exchanged(gradients, s_.grad_scale);
    for (UnitState& r : all_)
      for (size_t i = 0; i < n_; ++i) {
        r.m[i] = r.v[i] > 0 ? std::fma(rest1(), g[i] - r.m[i], r.m[i]) : 0;
        const float step = r.v[i] > 0 ? r.m[i] / (std::sqrt(r.v[i]) + eps_) : 0;
        r.master[i] = std::fma(-s_.lr, std::fma(decay_, r.master[i], step), r.master[i]);
        r.params[i] = rounded_to(dtype_, r.master[i]);
      }
  }
  void local_step(const std::vector<Values>& gradients) {
    const float scale = s_.grad_scale * static_cast<float>(all_.size());
    for (size_t k = 0; k < all_.size(); ++k)
      for (size_t i = 0; i < n_; ++i) {
        UnitState& r = all_[k];
        const float g = gradients[k][i] * scale;
        r.m[i] = r.v[i] > 0 ? std::fma(rest1(), g - r.m[i], r.m[i]) : 0;
        r.sum[i] = std::fma(s_.lr, r.m[i], r.sum[i]);
      }
  }
  void synchronise(double rates, bool drop_errors) {
    std::vector<Values> sums;
    for (UnitState& r : all_) {
      if (drop_errors) std::ranges::fill(r.worker_error, 0);
      if (drop_errors) std::ranges::fill(r.owner_error, 0);
      sums.push_back(r.sum);
    }
    const float share = 1.0f / static_cast<float>(all_.size());
    const Values sum = all_.size() == 1 ? sums[0] : exchanged(sums, share);
    for (UnitState& r : all_)
      for (size_t i = 0; i < n_; ++i) {
        r.master[i] = moved(r.master[i], r.v[i], sum[i], rates);
        r.params[i] = rounded_to(dtype_, r.master[i]);
        r.m[i] = r.v[i] > 0 ? sum[i] / static_cast<float>(rates) : 0;
        r.sum[i] = 0;
      }
  }

 private:
  float rest1() const { return static_cast<float>(1.0 - s_.beta1); }
  float moved(float p, float v, float sum, double rates) const {
    const float step = v > 0 ? sum / (std::sqrt(v) + eps_) : 0;
    return std::fma(-(static_cast<float>(rates) * decay_), p, p - step);
  }
  // Returns the sum of what the signs of factor * x + error stand for.
  Values exchanged(const std::vector<Values>& values, float factor) {
    std::vector<Values*> worker, owner;
    for (UnitState& r : all_) {
      worker.push_back(&r.worker_error);
      owner.push_back(&r.owner_error);
    }
    std::vector<Values> totals = values;
    for (size_t r = 0; r < values.size(); ++r)
      for (size_t i = 0; i < n_; ++i)
        totals[r][i] = std::fma(factor, values[r][i], (*worker[r])[i]);
    for (Values* error : worker) std::ranges::fill(*error, 0);
    return exchange(totals, worker, owner);
  }

  const StepState& s_;
  const float eps_, decay_;
  const DType dtype_;
  std::vector<UnitState>& all_;
  const size_t n_;
};

// Returns what all ranks have of each unit. Collective.
std::vector<std::vector<UnitState>> states_of(const RankRun& run, int ranks) {
  std::vector<std::vector<UnitState>> list;
  for (const Unit& unit : run.plan().program.units) {
    const UnitState mine = state_of(run, unit);
    auto& all = list.emplace_back(static_cast<size_t>(ranks), mine);
    for (Values UnitState::*values : {&UnitState::params, &UnitState::m, &UnitState::sum,
                                      &UnitState::worker_error, &UnitState::owner_error}) {
      if ((mine.*values).empty()) continue;
      const auto of_all = run.of_all(mine.*values);
      for (size_t r = 0; r < all.size(); ++r) all[r].*values = of_all[r];
    }
  }
  return list;
}

}  // namespace

TEST_CASE("0/1 Adam: every step that sends no whole gradients is that of the definition") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  const auto rank = static_cast<size_t>(world->rank());
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const DType held : {DType::f32, dtype}) {
      if (dtype == DType::f32 && held != dtype) continue;
      Job job = zero_one_job(world->size(), dtype);
      job.grad_dtype = held;
      INFO(describe(job));
      RankRun run(job, data, *world);
      int skipped = 0;
      double rates = 0;
      while (run.state().applied_steps < kUpdates) {
        const int64_t applied = run.state().applied_steps;
        const StepKind kind = zero_one_step(kUpdatePlan, applied);
        auto expected = states_of(run, world->size());
        CHECK(run.step() == wire_bytes(run.plan(kind_of_step(job, applied, StepKind::regular))));
        const StepState& s = run.state();
        skipped += s.skip;
        if (kind == StepKind::whole_gradients) continue;
        const bool local = kind == StepKind::local || kind == StepKind::regular;
        const double with = rates + static_cast<double>(s.lr);
        int64_t wrong = 0, apart = 0;
        const std::vector<Unit>& units = run.plan().program.units;
        for (size_t u = 0; u < units.size(); ++u) {
          const auto gradients = run.of_all(run.read("grads:" + units[u].name));
          Model model(job, s, expected[u]);
          if (local) model.begin_local(rates);
          if (!s.skip) {
            if (kind == StepKind::gradient_signs) model.signs_of_gradients(gradients);
            if (local) model.local_step(gradients);
            if (kind == StepKind::regular) model.synchronise(with, applied == 5);
          }
          const UnitState mine = state_of(run, units[u]);
          wrong += differences(expected[u][rank], mine);
          const auto all = run.of_all(mine.master);
          for (const Values& other : all) apart += different(other, mine.master);
        }
        INFO("after " << applied << " updates");
        CHECK(wrong == 0);
        CHECK(apart == 0);
        if (!s.skip) rates = kind == StepKind::local ? with : 0;
      }
      CHECK((skipped > 0) == (dtype == DType::f16));
    }
}

TEST_CASE("0/1 Adam: until its second moment is frozen, steps with whole gradients are AdamW's") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = zero_one_job(world->size(), dtype);
    job.optimizer.zero_one.var_update_scaler = kSteps;
    job.optimizer.zero_one.var_freeze_step = kSteps;
    Job adamw = job;
    adamw.optimizer.kind = OptimizerKind::adam;
    adamw.optimizer.bias_correction = false;
    CHECK(difference(run_steps(adamw, data, *world, kSteps), run_steps(job, data, *world, kSteps),
                     *world) == "");
  }
}

TEST_CASE("0/1 Adam: what runs beside computation changes no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = zero_one_job(world->size(), dtype);
    const RunResult expected = run_steps(job, data, *world, kUpdates);
    job.overlap_comm = false;
    CHECK(difference(expected, run_steps(job, data, *world, kUpdates), *world) == "");
    CHECK(difference(expected, run_steps(job, data, *world, kUpdates, 2), *world) == "");
    job.recompute = {RecomputeMode::interval, 1};
    CHECK(difference(expected, run_steps(job, data, *world, kUpdates), *world) == "");
  }
}
