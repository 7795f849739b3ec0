#include "runtime/engine/metrics/loss_means.h"

#include <algorithm>
#include <string_view>

namespace dstrain {

NamedLosses mean_losses(const Program& program, std::span<const double> sums, double targets) {
  NamedLosses means;
  for (size_t l = 0; l < sums.size(); ++l)
    if (!program.losses[l].is_metric) means.emplace_back(program.losses[l].name, sums[l] / targets);
  return means.size() > 1 ? means : NamedLosses();
}

namespace {

constexpr std::string_view kChosen = "rewards/chosen", kRejected = "rewards/rejected",
                           kMargins = "rewards/margins";

// Returns the mean of a metric that is one over samples of its own; null if there is none.
const double* own_mean(const Program& program, const NamedLosses& means, std::string_view name) {
  const auto loss = std::ranges::find(program.losses, name, &ProgramLoss::metric);
  if (loss == program.losses.end() || loss->over < 0) return nullptr;
  const auto mean = std::ranges::find(means, name, &NamedLosses::value_type::first);
  return &mean->second;
}

// Adds the margin of rewards where the chosen and the rejected answers are not those of pairs (TRL's of KTO). It is the
// difference of two means over different numbers of answers, which no sum over samples gives.
void add_margins(const Program& program, NamedLosses& means) {
  const double* const chosen = own_mean(program, means, kChosen);
  const double* const rejected = own_mean(program, means, kRejected);
  if (chosen && rejected) means.emplace_back(kMargins, *chosen - *rejected);
}

}  // namespace

NamedLosses mean_metrics(const Program& program, std::span<const double> sums, double targets) {
  NamedLosses means;
  for (size_t l = 0; l < sums.size(); ++l)
    if (const ProgramLoss& loss = program.losses[l]; !loss.metric.empty())
      means.emplace_back(
          loss.metric, sums[l] / (loss.over < 0 ? targets : sums[static_cast<size_t>(loss.over)]));
  add_margins(program, means);
  return means;
}

}  // namespace dstrain
