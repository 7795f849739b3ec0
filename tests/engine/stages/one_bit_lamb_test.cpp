// 1-bit Lamb: the bits of Lamb until its second moment is frozen; then momenta that travel as signs, whose every step
// is compared with the definition. mpirun starts this program on 1 to 4 ranks.
#include <catch2/catch.hpp>
#include <map>

#include "runtime/comm/world.h"
#include "tests/engine/stages/sign_runs.h"
#include "tests/support/distance.h"

using namespace dstrain;

namespace {

constexpr int64_t kFreeze = 3;

// A model of odd sizes, of which the biases do not decay. The loss scale of fp16 soon grows until it overflows.
Job lamb_job(int ranks, DType dtype) {
  Job job = pipeline_job(dtype, ranks, 1, 2);
  job.optimizer.kind = OptimizerKind::one_bit_lamb;
  job.optimizer.freeze_step = kFreeze;
  job.optimizer.weight_decay = 0.1;
  job.optimizer.one_bit_lamb = {
      .coeff_beta = 0.5, .factor_max = 1.5, .factor_min = 0.75, .factor_threshold = 0.125};
  job.weight_decay_exclude = {"*.bias"};
  job.gradient_clipping = 0.5;
  job.loss_scale.initial = std::min(job.loss_scale.initial, 0x1p14);
  job.loss_scale.window = 1;
  job.overlap_comm = true;
  return job;
}

// What a rank has of a unit, by the names of buffers.
using UnitState = std::map<std::string, Values>;

UnitState state_of(const RankRun& run, const Unit& unit) {
  UnitState state;
  for (const char* name : {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh", "lamb_average",
                           "lamb_factor", "momentum_scale", "worker_error", "owner_error"})
    state[name] = run.read(std::string(name) + ":" + unit.name);
  state["master"] = run.master(unit);
  return state;
}

double square_sum(const Values& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

// A parameter's elements of its unit.
struct Elements {
  size_t begin, end;
  bool decays;
};

// Moves a parameter by the momenta that have come back, `sums`, of all elements of the unit.
void model_parameter(const Job& job, const StepState& s, Elements at, size_t index,
                     const Values& sums, UnitState& state) {
  const auto rest1 = static_cast<float>(1.0 - s.beta1), rest2 = static_cast<float>(1.0 - s.beta2);
  const auto eps = static_cast<float>(job.optimizer.eps);
  const float decay = at.decays ? static_cast<float>(job.optimizer.weight_decay) : 0;
  const float scale = state["momentum_scale"][index];
  float& last = state["lamb_factor"][index];
  Values plain, decayed;
  float largest = 0;
  for (size_t i = at.begin; i < at.end; ++i) {
    const float v = state["exp_avg_sq"][i];
    float &m = state["exp_avg"][i], &fresh = state["exp_avg_sq_fresh"][i];
    const float next = v > 0 ? sums[i] / scale : 0, g = m + (next - m) / rest1;
    if (last == 0) fresh = v;
    fresh = std::fma(rest2, g * g - fresh, fresh);
    const float root = std::sqrt(v) + eps;
    largest = std::max(largest, v > 0 ? root / (std::sqrt(fresh) + eps) : 1);
    m = next;
    plain.push_back(v > 0 ? next / root : 0);
    decayed.push_back(std::fma(decay, state["master"][i], plain.back()));
  }
  const OneBitLambConfig& c = job.optimizer.one_bit_lamb;
  const double before = last == 0 ? 1 : static_cast<double>(last);
  double factor = static_cast<double>(largest);
  if (at.decays && square_sum(decayed) > 0) {
    const double share = std::min(1.0, std::sqrt(square_sum(plain) / square_sum(decayed)));
    factor = factor * share + (1 - share);
  }
  factor = std::clamp(factor, c.factor_min, c.factor_max);
  factor = std::clamp(factor, before * (1 - c.factor_threshold), before * (1 + c.factor_threshold));
  last = static_cast<float>(factor);
  const float average = state["lamb_average"][index];
  const float rate = s.lr * ((average > 0 ? average : 1) * last);
  for (size_t i = at.begin; i < at.end; ++i) {
    float& p = state["master"][i];
    p = std::fma(-rate, decayed[i - at.begin], p);
  }
}

// Does a step by the definition: `states` of all ranks, whose `gradients` are those of their own samples.
void model_step(const Job& job, const StepState& s, const std::vector<Elements>& parameters,
                const std::vector<Values>& gradients, std::vector<UnitState>& states) {
  const size_t ranks = states.size(), n = gradients[0].size();
  const auto rest1 = static_cast<float>(1.0 - s.beta1);
  const float share = 1.0f / static_cast<float>(ranks);
  std::vector<Values> momenta(ranks, Values(n, 0));
  for (size_t r = 0; r < ranks; ++r)
    for (size_t k = 0; k < parameters.size(); ++k) {
      const Elements at = parameters[k];
      UnitState& state = states[r];
      float& scale = state["momentum_scale"][k];
      if (state["lamb_factor"][k] == 0) {
        const double sum = square_sum({state["exp_avg"].begin() + static_cast<ptrdiff_t>(at.begin),
                                       state["exp_avg"].begin() + static_cast<ptrdiff_t>(at.end)});
        scale = sum > 0
                    ? static_cast<float>(std::sqrt(static_cast<double>(at.end - at.begin) / sum))
                    : 1;
      }
      for (size_t i = at.begin; i < at.end; ++i) {
        const float old = state["exp_avg"][i] * share, g = gradients[r][i] * s.grad_scale;
        if (state["exp_avg_sq"][i] > 0) momenta[r][i] = std::fma(rest1, g - old, old) * scale;
      }
    }
  Values sums = momenta[0];
  if (ranks > 1) {
    std::vector<Values*> worker, owner;
    for (UnitState& state : states) {
      worker.push_back(&state["worker_error"]);
      owner.push_back(&state["owner_error"]);
    }
    sums = exchange(momenta, worker, owner);
  }
  for (UnitState& state : states)
    for (size_t k = 0; k < parameters.size(); ++k)
      model_parameter(job, s, parameters[k], k, sums, state);
}

std::vector<Elements> elements_in(const Program& program, const Unit& unit) {
  std::vector<Elements> list;
  for (const int index : unit.parameters) {
    const Parameter& p = program.parameters[static_cast<size_t>(index)];
    const auto begin = static_cast<size_t>(p.offset);
    list.push_back(
        {begin, begin + static_cast<size_t>(p.shape.elements()), !p.name.ends_with(".bias")});
  }
  return list;
}

// Returns the largest difference, relative to the largest value.
double distance(const Values& a, const Values& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  const double most = largest_magnitude(a), apart = largest_distance(a, b);
  return most > 0 ? apart / most : apart;
}

}  // namespace

TEST_CASE("until it freezes, 1-bit Lamb has the bits of Lamb without bias corrections") {
  check_until_frozen(lamb_job, OptimizerKind::lamb, kFreeze);
}

TEST_CASE("1-bit Lamb averages the trust ratios of its first steps") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  Job job = lamb_job(world->size(), DType::f32);
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
      const Values m = run.read("exp_avg:" + units[u].name),
                   v = run.read("exp_avg_sq:" + units[u].name);
      for (size_t k = 0; k < elements.size(); ++k) {
        Values weight, direction;
        for (size_t i = elements[k].begin; i < elements[k].end; ++i) {
          weight.push_back(before[u][i]);
          const double decay = elements[k].decays ? job.optimizer.weight_decay : 0;
          direction.push_back(
              static_cast<float>(static_cast<double>(m[i]) /
                                     (std::sqrt(static_cast<double>(v[i])) + job.optimizer.eps) +
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
    CHECK(distance(expected[u], run.read("lamb_average:" + units[u].name)) < 1e-4);
}

TEST_CASE("once it is frozen, every step of 1-bit Lamb is that of the definition") {
  const RandomDataset data(13);
  const auto world = make_communicator();
  const auto rank = static_cast<size_t>(world->rank());
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const DType held : {DType::f32, dtype}) {
      Job job = lamb_job(world->size(), dtype);
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
          const auto worker = run.of_all(mine.at("worker_error")),
                     owner = run.of_all(mine.at("owner_error"));
          for (size_t r = 0; r < all.size(); ++r) {
            all[r]["worker_error"] = worker[r];
            all[r]["owner_error"] = owner[r];
          }
        }
        CHECK(run.step() == wire_bytes(run.plan()));
        const bool skip = run.state().skip != 0;
        skipped += skip;
        int64_t moved = 0;
        for (size_t u = 0; u < units.size(); ++u) {
          const auto gradients = run.of_all(run.read("grads:" + units[u].name));
          const Values before = expected[u][rank].at("master");
          if (!skip)
            model_step(job, run.state(), elements_in(run.plan().program, units[u]), gradients,
                       expected[u]);
          const UnitState mine = state_of(run, units[u]);
          moved += different(before, mine.at("master"));
          for (const auto& [name, values] : expected[u][rank]) {
            CAPTURE(name, units[u].name, step);
            // Sums of squares are added in another order here.
            if (skip)
              CHECK(different(values, mine.at(name)) == 0);
            else
              CHECK(distance(values, mine.at(name)) < 1e-5);
          }
        }
        CHECK((moved == 0) == skip);
      }
      CHECK((skipped > 0) == (dtype == DType::f16));
    }
}

TEST_CASE("1-bit Lamb: what runs beside computation and how often ranks add change no bit") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Job job = lamb_job(world->size(), dtype);
    const RunResult expected = run_steps(job, data, *world, kSteps);
    CHECK(expected.sent_per_step == expected.planned_to_send);
    job.overlap_comm = false;
    CHECK(difference(expected, run_steps(job, data, *world, kSteps), *world) == "");
    CHECK(difference(expected, run_steps(job, data, *world, kSteps, 2), *world) == "");
    job.recompute = {RecomputeMode::interval, 1};
    CHECK(difference(expected, run_steps(job, data, *world, kSteps), *world) == "");
  }
}

TEST_CASE("1-bit Lamb: stage 1 has the bits of stage 0, until it freezes and after") {
  check_stage_1(lamb_job, kFreeze);
}

TEST_CASE("1-bit Lamb at stage 1: each step sends what its plan says, one of them the momentum") {
  check_gathers(lamb_job, kFreeze, "scaled_momentum:");
}
