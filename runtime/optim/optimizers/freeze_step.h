// What SignRule says of optimizers that freeze a moment at OptimizerConfig::freeze_step.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/optim/optimizer_rule.h"

namespace dstrain::optimizers {

// SignRule::never_freeze.
inline void never_freeze(OptimizerConfig& config) {
  config.freeze_step = kNoFreeze;
}
// SignRule::shorten.
inline int64_t freeze_soon(OptimizerConfig& config) {
  config.freeze_step = std::clamp<int64_t>(config.freeze_step, 1, 2);
  return config.freeze_step + 3;
}

}  // namespace dstrain::optimizers
