#include "runtime/engine/step/finish_values.h"

#include <algorithm>
#include <array>

#include "runtime/core/step_rules.h"

namespace dstrain {
namespace {

constexpr size_t kLoss = 0, kStop = 1, kSums = 2;  // of what a rank of a pipeline contributes

}  // namespace

FinishValues::FinishValues(MeshComm& mesh, Place place, size_t units)
    : mesh_(mesh), place_(place), mine_(kFinishValues) {
  const auto ranks = static_cast<size_t>(mesh.world().size());
  if (place.stages > 1) {
    std::vector<double> all(ranks);
    const auto count = static_cast<double>(units);
    mesh.world().gather_values({&count, 1}, all);
    for (int s = 0; s < place.stages; ++s)
      units_.push_back(all[static_cast<size_t>(world_rank(place, s, 0))]);
    mine_.resize(kSums + static_cast<size_t>(*std::ranges::max_element(units_)));
  }
  all_.resize(mine_.size() * ranks);
}

void FinishValues::exchange(StepState& state, std::span<const double> square_sums, double loss) {
  if (place_.stages > 1) return exchange_stages(state, square_sums, loss);
  std::ranges::fill(mine_, 0.0);
  for (const double sum : square_sums) mine_[0] += sum;
  mine_[1] = loss;
  mine_[2] = state.stop;
  mesh_.world().gather_values(mine_, all_);
  add_finish_values(state, all_.data(), place_.ranks);
}

void FinishValues::exchange_stages(StepState& state, std::span<const double> square_sums,
                                   double loss) {
  mine_[kLoss] = loss;
  mine_[kStop] = state.stop;
  std::ranges::copy(square_sums, mine_.begin() + kSums);
  const auto width = static_cast<int64_t>(mine_.size());
  mesh_.world()
      .all_gather({mine_.data(), {width}, DType::f64},
                  {all_.data(), {width * mesh_.world().size()}, DType::f64})
      .wait();
  // What each rank of one data-parallel group would contribute if it had the whole model.
  std::vector<double> whole(kFinishValues * static_cast<size_t>(place_.ranks));
  for (int r = 0; r < place_.ranks; ++r) {
    double* const values = whole.data() + kFinishValues * r;
    for (int s = 0; s < place_.stages; ++s) {
      const double* const from = all_.data() + width * world_rank(place_, s, r);
      const auto units = static_cast<size_t>(units_[static_cast<size_t>(s)]);
      for (size_t u = 0; u < units; ++u) values[0] += from[kSums + u];
      values[1] += from[kLoss];
      if (from[kStop] != 0) values[2] = 1;
    }
  }
  add_finish_values(state, whole.data(), place_.ranks);
}

}  // namespace dstrain
