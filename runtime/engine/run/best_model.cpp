#include "runtime/engine/run/best_model.h"

#include <cmath>

namespace dstrain {

void BestModel::resume(const std::optional<BestValidation>& best) {
  if (!best || best->metric != config_.metric) return;
  best_ = best;
  without_better_ = best->without_better;
}

bool BestModel::add(int64_t step, double value) {
  const bool better = std::isfinite(value) && (!best_ || is_better(value));
  // The threshold is for the patience alone, and is compared with the best value before this one.
  const bool counts = better && (!best_ || std::fabs(value - best_->value) > config_.threshold);
  without_better_ = counts ? 0 : without_better_ + 1;
  if (better) best_ = BestValidation{.metric = config_.metric, .step = step, .value = value};
  if (best_) best_->without_better = without_better_;
  return better;
}

}  // namespace dstrain
