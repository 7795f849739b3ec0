#include "runtime/engine/metrics/loss_means.h"

namespace dstrain {

NamedLosses mean_losses(const Program& program, std::span<const double> sums, double targets) {
  NamedLosses means;
  for (size_t l = 0; l < sums.size(); ++l)
    if (!program.losses[l].is_metric) means.emplace_back(program.losses[l].name, sums[l] / targets);
  return means.size() > 1 ? means : NamedLosses();
}

NamedLosses mean_metrics(const Program& program, std::span<const double> sums, double targets) {
  NamedLosses means;
  for (size_t l = 0; l < sums.size(); ++l)
    if (const ProgramLoss& loss = program.losses[l]; !loss.metric.empty())
      means.emplace_back(
          loss.metric, sums[l] / (loss.over < 0 ? targets : sums[static_cast<size_t>(loss.over)]));
  return means;
}

}  // namespace dstrain
