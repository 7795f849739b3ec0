// The definitions of the optimizers whose ranks send signs: what a step that adds no whole gradients makes of a unit,
// step by step on all ranks at once.
#pragma once

#include "runtime/optim/optimizers/one_bit.h"
#include "tests/engine/stages/sign_runs.h"

namespace dstrain {

// What a rank has of a unit; empty where there is no such buffer.
struct UnitState {
  Values params, master, m, v, fresh, average, factor, scale, sum, worker_error, owner_error;
};
struct StateBuffer {
  const char* name;
  Values UnitState::*values;
};
inline constexpr StateBuffer kStateBuffers[] = {{"params", &UnitState::params},
                                                {"exp_avg", &UnitState::m},
                                                {"exp_avg_sq", &UnitState::v},
                                                {"exp_avg_sq_fresh", &UnitState::fresh},
                                                {"lamb_average", &UnitState::average},
                                                {"lamb_factor", &UnitState::factor},
                                                {"momentum_scale", &UnitState::scale},
                                                {"local_sum", &UnitState::sum},
                                                {"worker_error", &UnitState::worker_error},
                                                {"owner_error", &UnitState::owner_error},
                                                {"master", &UnitState::master}};

inline UnitState state_of(const RankRun& run, const Unit& unit) {
  UnitState state;
  for (const auto& [name, values] : kStateBuffers)
    state.*values = run.read(std::string(name) + ":" + unit.name);
  state.master = run.master(unit);
  return state;
}

// Returns what all ranks have of a unit. Collective.
inline std::vector<UnitState> states_of(const RankRun& run, const Unit& unit, int ranks) {
  const UnitState mine = state_of(run, unit);
  std::vector<UnitState> all(static_cast<size_t>(ranks), mine);
  std::vector<Values UnitState::*> own{&UnitState::worker_error, &UnitState::owner_error};
  // With local steps ranks also have weights and momenta of their own.
  if (!mine.sum.empty())
    own.insert(own.end(), {&UnitState::params, &UnitState::m, &UnitState::sum});
  for (const auto values : own) {
    if ((mine.*values).empty()) continue;
    const std::vector<Values> of_all = run.of_all(mine.*values);
    for (size_t r = 0; r < all.size(); ++r) all[r].*values = of_all[r];
  }
  return all;
}

// A parameter's elements of its unit.
struct Elements {
  size_t begin, end;
  bool decays;
};
inline std::vector<Elements> elements_in(const Program& program, const Unit& unit) {
  std::vector<Elements> list;
  for (const int index : unit.parameters) {
    const Parameter& p = program.parameters[static_cast<size_t>(index)];
    const auto begin = static_cast<size_t>(p.offset);
    list.push_back(
        {begin, begin + static_cast<size_t>(p.shape.elements()), !p.name.ends_with(".bias")});
  }
  return list;
}

inline double square_sum(const Values& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

// One unit of all ranks, whose `gradients` are those of their own samples, in one step.
class SignModel {
 public:
  SignModel(const Job& job, const StepState& state, std::vector<Elements> parameters,
            std::vector<Values> gradients, std::vector<UnitState>& ranks)
      : job_(job),
        s_(state),
        parameters_(std::move(parameters)),
        gradients_(std::move(gradients)),
        all_(ranks) {}

  void one_bit_adam() {
    const Values momentum = exchanged(shares());
    for (UnitState& r : all_) {
      r.m = momentum;
      frozen_adam(r);
    }
  }

  void one_bit_lamb() {
    std::vector<Values> momenta = shares();
    for (size_t r = 0; r < all_.size(); ++r)
      for (size_t k = 0; k < parameters_.size(); ++k) {
        const auto [begin, end, decays] = parameters_[k];
        const Values &m = all_[r].m, &factor = all_[r].factor;
        float& scale = all_[r].scale[k];
        if (factor[k] == 0) {
          const double sum = square_sum(
              {m.begin() + static_cast<ptrdiff_t>(begin), m.begin() + static_cast<ptrdiff_t>(end)});
          scale =
              sum > 0 ? static_cast<float>(std::sqrt(static_cast<double>(end - begin) / sum)) : 1;
        }
        for (size_t i = begin; i < end; ++i) momenta[r][i] *= scale;
      }
    const Values sums = exchanged(std::move(momenta));
    for (UnitState& r : all_) {
      for (size_t k = 0; k < parameters_.size(); ++k) move_parameter(r, k, sums);
      round_params(r);
    }
  }

  // 0/1 Adam. The weights that a step computes with, from what the local steps before it have moved.
  void begin_local(double rates) {
    for (UnitState& r : all_)
      for (size_t i = 0; i < r.params.size(); ++i)
        r.params[i] = rounded(moved(r, i, r.sum[i], rates));
  }
  void signs_of_gradients() {
    Values g = gradients_[0];
    if (all_.size() == 1)
      for (float& value : g) value *= s_.grad_scale;
    else
      g = exchanged(scaled(gradients_, s_.grad_scale));
    for (UnitState& r : all_) {
      for (size_t i = 0; i < g.size(); ++i) r.m[i] = momentum(r, i, r.m[i], g[i]);
      frozen_adam(r);
    }
  }
  void local_step() {
    const float scale = s_.grad_scale * static_cast<float>(all_.size());
    for (size_t k = 0; k < all_.size(); ++k) {
      UnitState& r = all_[k];
      for (size_t i = 0; i < gradients_[k].size(); ++i) {
        float &m = r.m[i], &sum = r.sum[i];
        m = momentum(r, i, m, gradients_[k][i] * scale);
        sum = std::fma(s_.lr, m, sum);
      }
    }
  }
  void synchronise(double rates, bool drop_errors) {
    std::vector<Values> sums;
    for (UnitState& r : all_) {
      if (drop_errors)
        for (Values* error : {&r.worker_error, &r.owner_error}) std::ranges::fill(*error, 0.0f);
      sums.push_back(r.sum);
    }
    const Values sum = all_.size() == 1 ? sums[0] : exchanged(scaled(sums, share()));
    for (UnitState& r : all_) {
      for (size_t i = 0; i < sum.size(); ++i) {
        r.master[i] = moved(r, i, sum[i], rates);
        r.m[i] = r.v[i] > 0 ? sum[i] / static_cast<float>(rates) : 0;
        r.sum[i] = 0;
      }
      round_params(r);
    }
  }

 private:
  float rest(double beta) const { return static_cast<float>(1.0 - beta); }
  float share() const { return 1.0f / static_cast<float>(all_.size()); }
  float eps() const { return static_cast<float>(job_.optimizer.eps); }
  float decay() const { return static_cast<float>(job_.optimizer.weight_decay); }

  float rounded(float value) const {
    if (job_.dtype == DType::bf16) return to_float(to_bf16(value));
    return job_.dtype == DType::f16 ? to_float(to_f16(value)) : value;
  }
  void round_params(UnitState& r) const {
    for (size_t i = 0; i < r.params.size(); ++i) r.params[i] = rounded(r.master[i]);
  }

  float momentum(const UnitState& r, size_t i, float old, float g) const {
    return r.v[i] > 0 ? std::fma(rest(s_.beta1), g - old, old) : 0;
  }
  // Returns each rank's share of the momentum.
  std::vector<Values> shares() {
    std::vector<Values> list = gradients_;
    for (size_t r = 0; r < all_.size(); ++r)
      for (size_t i = 0; i < list[r].size(); ++i)
        list[r][i] = momentum(all_[r], i, all_[r].m[i] * share(), list[r][i] * s_.grad_scale);
    return list;
  }

  // Returns the step of a weight by a momentum.
  float step_of(const UnitState& r, size_t i, float m) const {
    const float v = r.v[i];
    return v > 0 ? m / (std::sqrt(v) + eps()) : 0;
  }
  void frozen_adam(UnitState& r) const {
    for (size_t i = 0; i < r.master.size(); ++i) {
      float& p = r.master[i];
      p = std::fma(-s_.lr, std::fma(decay(), p, step_of(r, i, r.m[i])), p);
    }
    round_params(r);
  }
  float moved(const UnitState& r, size_t i, float sum, double rates) const {
    const float p = r.master[i];
    return std::fma(-(static_cast<float>(rates) * decay()), p, p - step_of(r, i, sum));
  }

  // Moves a parameter by the momenta that have come back, of all elements of the unit.
  void move_parameter(UnitState& r, size_t index, const Values& sums) const {
    const auto [begin, end, decays] = parameters_[index];
    const float of_decay = decays ? decay() : 0, scale = r.scale[index];
    float& last = r.factor[index];
    Values plain, decayed;
    float largest = 0;
    for (size_t i = begin; i < end; ++i) {
      const float v = r.v[i];
      float &m = r.m[i], &fresh = r.fresh[i];
      const float next = v > 0 ? sums[i] / scale : 0, g = m + (next - m) / rest(s_.beta1);
      if (last == 0) fresh = v;
      fresh = std::fma(rest(s_.beta2), g * g - fresh, fresh);
      largest = std::max(largest, v > 0 ? (std::sqrt(v) + eps()) / (std::sqrt(fresh) + eps()) : 1);
      m = next;
      plain.push_back(step_of(r, i, next));
      decayed.push_back(std::fma(of_decay, r.master[i], plain.back()));
    }
    const OneBitLambConfig& c = job_.optimizer.one_bit_lamb;
    const double before = last == 0 ? 1 : static_cast<double>(last);
    double factor = static_cast<double>(largest);
    if (decays && square_sum(decayed) > 0) {
      const double of_step = std::min(1.0, std::sqrt(square_sum(plain) / square_sum(decayed)));
      factor = factor * of_step + (1 - of_step);
    }
    factor = std::clamp(factor, c.factor_min, c.factor_max);
    factor =
        std::clamp(factor, before * (1 - c.factor_threshold), before * (1 + c.factor_threshold));
    last = static_cast<float>(factor);
    const float average = r.average[index];
    const float rate = s_.lr * ((average > 0 ? average : 1) * last);
    for (size_t i = begin; i < end; ++i) {
      float& p = r.master[i];
      p = std::fma(-rate, decayed[i - begin], p);
    }
  }

  // Returns factor * x + error of each rank, and leaves errors of 0.
  std::vector<Values> scaled(std::vector<Values> x, float factor) {
    for (size_t r = 0; r < x.size(); ++r) {
      Values& error = all_[r].worker_error;
      for (size_t i = 0; i < x[r].size(); ++i) x[r][i] = std::fma(factor, x[r][i], error[i]);
      std::ranges::fill(error, 0.0f);
    }
    return x;
  }
  // Returns the sum of what the signs of x + error stand for.
  Values exchanged(std::vector<Values> x) {
    if (x.size() == 1) return x[0];
    std::vector<Values*> worker, owner;
    for (UnitState& r : all_) {
      worker.push_back(&r.worker_error);
      owner.push_back(&r.owner_error);
    }
    return exchange(x, worker, owner);
  }

  const Job& job_;
  const StepState& s_;
  const std::vector<Elements> parameters_;
  const std::vector<Values> gradients_;
  std::vector<UnitState>& all_;
};

}  // namespace dstrain
