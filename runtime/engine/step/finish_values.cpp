#include "runtime/engine/step/finish_values.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/core/step_rules.h"

namespace dstrain {
namespace {

constexpr size_t kStop = 0,
                 kLosses = 1;  // of what a rank contributes; behind the losses, square sums

}  // namespace

FinishValues::FinishValues(MeshComm& mesh, Place place, std::span<const Unit> units,
                           std::span<const ProgramLoss> losses)
    : mesh_(mesh),
      place_(place),
      losses_(losses.size()),
      whole_(kFinishValues * static_cast<size_t>(place.ranks())) {
  for (const ProgramLoss& loss : losses) {
    weights_.push_back(static_cast<double>(loss.weight));
    differentiated_.push_back(loss.is_metric ? 0 : 1);
    replicated_.push_back(loss.replicated ? 1 : 0);
  }
  if (place.stages() > 1) find_order(units);
  mine_.resize(kLosses + losses.size() + (place.stages() > 1 ? most_units_ : 1));
  all_.resize(mine_.size() * static_cast<size_t>(mesh.world().size()));
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
  std::map<std::pair<double, size_t>, StageUnit> by_sublayer;
  for (int stage = 0; stage < place_.stages(); ++stage) {
    const auto rank = static_cast<size_t>(world_rank(place_, stage, 0));
    for (size_t u = 0; u < static_cast<size_t>(counts[rank]); ++u)
      by_sublayer[{all[rank * most_units_ + u], u}] = {stage, u};
  }
  for (const auto& [sublayer, unit] : by_sublayer) order_.push_back(unit);
}

const double* FinishValues::from(int stage, int r, int tensor) const {
  const Place place = place_.moved(Axis::tensor, tensor);
  return all_.data() + mine_.size() * static_cast<size_t>(world_rank(place, stage, r));
}

void FinishValues::exchange(StepState& state, std::span<const double> square_sums,
                            std::span<const double> losses, const FinishRule& rule) {
  const size_t sums = kLosses + weights_.size();  // where square sums begin
  const bool pipeline = place_.stages() > 1;
  mine_[kStop] = state.stop;
  std::ranges::copy(losses, mine_.begin() + kLosses);
  if (pipeline) {
    std::ranges::copy(square_sums, mine_.begin() + static_cast<ptrdiff_t>(sums));
  } else {
    mine_[sums] = 0;
    for (const double sum : square_sums) mine_[sums] += sum;
  }
  const auto width = static_cast<int64_t>(mine_.size());
  if (pipeline)
    mesh_.host()
        .all_gather({mine_.data(), {width}, DType::f64},
                    {all_.data(), {width * mesh_.world().size()}, DType::f64})
        .wait();
  else
    mesh_.world().gather_values(mine_, all_);
  std::ranges::fill(losses_, 0.0);
  const int ranks = place_.ranks(), stages = place_.stages(),
            tensor = place_.ranks_in(Axis::tensor);
  for (int r = 0; r < ranks; ++r) {
    double* const values = whole_.data() + kFinishValues * r;
    values[0] = values[1] = values[2] = 0;
    for (int t = 0; t < tensor; ++t) {
      // Adds the units of a rank first, then the ranks, as a run without a pipeline does.
      double of_rank = pipeline ? 0 : from(0, r, t)[sums];
      if (pipeline)
        for (const auto& [stage, unit] : order_) of_rank += from(stage, r, t)[sums + unit];
      values[0] += of_rank;
      for (int s = 0; s < stages; ++s)
        if (from(s, r, t)[kStop] != 0) values[2] = 1;
    }
    for (size_t l = 0; l < weights_.size(); ++l) {
      double loss = 0;
      for (int t = 0; t < (replicated_[l] ? 1 : tensor); ++t)
        for (int s = 0; s < stages; ++s) loss += from(s, r, t)[kLosses + l];
      // A metric may be no number, which is no matter of the loss.
      if (differentiated_[l]) values[1] += weights_[l] * loss;
      losses_[l] += loss;
    }
  }
  add_finish_values(state, whole_.data(), ranks, rule);
}

}  // namespace dstrain
