#include "runtime/engine/step/finish_values.h"

#include <algorithm>
#include <map>

#include "runtime/core/step_rules.h"

namespace dstrain {
namespace {

constexpr size_t kLoss = 0, kStop = 1, kSums = 2;  // of what a rank of a pipeline contributes

}  // namespace

FinishValues::FinishValues(MeshComm& mesh, Place place, std::span<const Unit> units)
    : mesh_(mesh), place_(place), mine_(kFinishValues) {
  const auto ranks = static_cast<size_t>(mesh.world().size());
  if (place.stages > 1) {
    find_order(units);
    mine_.resize(kSums + most_units_);
  }
  all_.resize(mine_.size() * ranks);
}

void FinishValues::find_order(std::span<const Unit> units) {
  std::vector<double> counts(static_cast<size_t>(mesh_.world().size()));
  const auto count = static_cast<double>(units.size());
  mesh_.world().gather_values({&count, 1}, counts);
  most_units_ = static_cast<size_t>(*std::ranges::max_element(counts));
  std::vector<double> mine, all(most_units_ * counts.size());
  for (const Unit& unit : units) mine.push_back(static_cast<double>(unit.first_sublayer));
  mine.resize(most_units_);
  const auto width = static_cast<int64_t>(most_units_);
  mesh_.host()
      .all_gather({mine.data(), {width}, DType::f64},
                  {all.data(), {static_cast<int64_t>(all.size())}, DType::f64})
      .wait();
  std::map<double, StageUnit> by_sublayer;
  for (int stage = 0; stage < place_.stages; ++stage) {
    const auto rank = static_cast<size_t>(world_rank(place_, stage, 0));
    for (size_t u = 0; u < static_cast<size_t>(counts[rank]); ++u)
      by_sublayer[all[rank * most_units_ + u]] = {stage, u};
  }
  for (const auto& [sublayer, unit] : by_sublayer) order_.push_back(unit);
}

void FinishValues::exchange(StepState& state, std::span<const double> square_sums, double loss,
                            const FinishRule& rule) {
  if (place_.stages > 1) return exchange_stages(state, square_sums, loss, rule);
  std::ranges::fill(mine_, 0.0);
  for (const double sum : square_sums) mine_[0] += sum;
  mine_[1] = loss;
  mine_[2] = state.stop;
  mesh_.world().gather_values(mine_, all_);
  add_finish_values(state, all_.data(), place_.ranks, rule);
}

void FinishValues::exchange_stages(StepState& state, std::span<const double> square_sums,
                                   double loss, const FinishRule& rule) {
  mine_[kLoss] = loss;
  mine_[kStop] = state.stop;
  std::ranges::copy(square_sums, mine_.begin() + kSums);
  const auto width = static_cast<int64_t>(mine_.size());
  mesh_.host()
      .all_gather({mine_.data(), {width}, DType::f64},
                  {all_.data(), {width * mesh_.world().size()}, DType::f64})
      .wait();
  // What each rank of one data-parallel group would contribute if it had the whole model.
  std::vector<double> whole(kFinishValues * static_cast<size_t>(place_.ranks));
  for (int r = 0; r < place_.ranks; ++r) {
    double* const values = whole.data() + kFinishValues * r;
    const auto from = [&](int stage) { return all_.data() + width * world_rank(place_, stage, r); };
    for (const auto& [stage, unit] : order_) values[0] += from(stage)[kSums + unit];
    for (int s = 0; s < place_.stages; ++s) {
      values[1] += from(s)[kLoss];
      if (from(s)[kStop] != 0) values[2] = 1;
    }
  }
  add_finish_values(state, whole.data(), place_.ranks, rule);
}

}  // namespace dstrain
