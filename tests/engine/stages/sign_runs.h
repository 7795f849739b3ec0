// What the tests of optimizers whose momenta or gradients travel as signs share: a rank whose state can be read step by
// step, and the definition of an exchange.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/implementations.h"
#include "runtime/comm/world.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/ir/quantized.h"
#include "tests/engine/stages/pipeline_jobs.h"

namespace dstrain {

using Values = std::vector<float>;

// One rank of a run.
class RankRun {
 public:
  RankRun(const Job& job, const Dataset& data, Communicator& world) : world_(world) {
    context_.comm = &world;
    trainer_.emplace(job, data, context_, make_backend(implementations(), job.device));
    trainer_->load();
  }

  // Returns the bytes that were sent.
  int64_t step() {
    const int64_t before = trainer_->communicator().wire_bytes();
    trainer_->step();
    return trainer_->communicator().wire_bytes() - before;
  }
  const StepState& state() const { return trainer_->state(); }
  const Plan& plan() const { return trainer_->plan(); }
  const Plan& plan(StepKind kind) const { return trainer_->plan(kind); }
  const Plan& newest_plan() const { return trainer_->newest_plan(); }
  // Returns the masters of a unit.
  Values master(const Unit& unit) const {
    const bool apart = plan().program.find("master:" + unit.name) != kNone;
    return read((apart ? "master:" : "params:") + unit.name);
  }

  // Returns a buffer's values in f32; none if there is no such buffer.
  Values read(const std::string& name) const {
    const BufferId id = plan().program.find(name);
    Values list;
    if (id == kNone) return list;
    const Tensor t = trainer_->arenas().tensor(plan(), id);
    for (int64_t i = 0; i < t.elements(); ++i)
      list.push_back(t.dtype == DType::f32    ? t.as<float>()[i]
                     : t.dtype == DType::bf16 ? to_float(t.as<bf16>()[i])
                                              : to_float(t.as<f16>()[i]));
    return list;
  }
  // Returns the values of each rank.
  std::vector<Values> of_all(Values mine) const {
    const auto n = static_cast<int64_t>(mine.size()), ranks = int64_t{world_.size()};
    Values all(mine.size() * static_cast<size_t>(ranks));
    world_.all_gather({mine.data(), {n}, DType::f32}, {all.data(), {n * ranks}, DType::f32}).wait();
    std::vector<Values> list;
    for (int64_t r = 0; r < ranks; ++r)
      list.emplace_back(all.begin() + r * n, all.begin() + (r + 1) * n);
    return list;
  }

 private:
  Communicator& world_;
  RunContext context_{implementations()};
  std::optional<Trainer> trainer_;
};

// Replaces x by what its signs stand for.
inline void round_to_signs(Values& x) {
  for (size_t first = 0; first < x.size(); first += kSignBlock) {
    const size_t end = std::min(x.size(), first + static_cast<size_t>(kSignBlock));
    float sums[32] = {};
    for (size_t i = first; i < end; ++i) sums[(i - first) % 32] += std::fabs(x[i]);
    for (size_t half = 16; half > 0; half /= 2)
      for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
    const float scale = sums[0] / static_cast<float>(end - first);
    for (size_t i = first; i < end; ++i) x[i] = x[i] < 0 ? -scale : scale;
  }
}

// Adds x to the error, returns what the signs of that stand for, and keeps what they lose.
inline Values send(const Values& x, float* error) {
  Values total(x.size());
  for (size_t i = 0; i < x.size(); ++i) total[i] = x[i] + error[i];
  Values back = total;
  round_to_signs(back);
  for (size_t i = 0; i < x.size(); ++i) error[i] = total[i] - back[i];
  return back;
}

// Returns the sum of what the signs of `values` stand for: each rank packs its values for every owner, and each owner
// the sum of what it has received. `worker` and `owner`: the errors of all ranks, as the kernels keep them.
inline Values exchange(const std::vector<Values>& values, const std::vector<Values*>& worker,
                       const std::vector<Values*>& owner) {
  const size_t ranks = values.size(), part = values[0].size() / ranks;
  Values result(values[0].size());
  for (size_t o = 0; o < ranks; ++o) {
    const auto at = static_cast<ptrdiff_t>(o * part), end = static_cast<ptrdiff_t>(at + part);
    Values sum(part, 0);
    for (size_t r = 0; r < ranks; ++r) {
      const Values back =
          send({values[r].begin() + at, values[r].begin() + end}, worker[r]->data() + at);
      for (size_t i = 0; i < part; ++i) sum[i] += back[i];
    }
    std::ranges::copy(send(sum, owner[o]->data()), result.begin() + at);
  }
  return result;
}

// Returns how many values differ.
inline int64_t different(const Values& a, const Values& b) {
  if (a.size() != b.size()) return -1;
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

}  // namespace dstrain
