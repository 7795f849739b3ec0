// BestModel: which validation of a run is the best so far, and whether the run goes on without a better one, as
// Hugging Face's Trainer and EarlyStoppingCallback decide it. Pure; the same on all ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/config/job.h"
#include "runtime/storage/checkpoint/manifest.h"

namespace dstrain {

class BestModel {
 public:
  explicit BestModel(const BestModelConfig& config) : config_(config) {}

  // Goes on from a checkpoint of the same run. What was best by another metric is forgotten.
  void resume(const std::optional<BestValidation>& best);

  // Takes the metric of the validation that follows `step`. Returns whether it is the best so far. A value that is not
  // finite never is.
  bool add(int64_t step, double value);

  // Returns the best validation; nothing before there is one with a finite value.
  const std::optional<BestValidation>& best() const { return best_; }

  // Returns whether as many validations in a row as the configuration allows have been no better.
  bool ends_run() const { return config_.patience > 0 && without_better_ >= config_.patience; }
  int64_t without_better() const { return without_better_; }

 private:
  bool is_better(double value) const {
    return config_.greater_is_better ? value > best_->value : value < best_->value;
  }

  const BestModelConfig& config_;
  std::optional<BestValidation> best_{};
  int64_t without_better_ = 0;  // validations in a row
};

}  // namespace dstrain
