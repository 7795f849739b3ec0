#include "runtime/optim/zero_one_steps.h"

#include <fmt/core.h>

#include <algorithm>

namespace dstrain {
namespace {

// Returns whether gradients travel whole in update `step`, counted from 1.
bool updates_variance(int64_t scaler, int64_t step) {
  int64_t interval = 1;
  while (step > scaler * interval) {
    step -= scaler * interval;
    interval *= 2;
  }
  return step % interval == 0;
}

// Returns whether local step `step`, counted from 1, synchronises.
bool synchronises(const ZeroOneConfig& config, int64_t step) {
  constexpr int64_t kMostDoublings = 62;
  const int64_t doublings = (step - 1) / config.local_step_scaler;
  const int64_t interval = int64_t{1} << std::min(doublings, kMostDoublings);
  return step % std::min(interval, config.local_step_clipper) == 0;
}

}  // namespace

std::vector<StepKind> zero_one_kinds(const OptimizerConfig& config) {
  const ZeroOneConfig& c = config.zero_one;
  std::vector<StepKind> kinds{StepKind::regular, StepKind::whole_gradients};
  if (c.var_freeze_step > c.var_update_scaler) kinds.push_back(StepKind::gradient_signs);
  if (c.local_step_clipper > 1) kinds.push_back(StepKind::local);
  return kinds;
}

StepKind zero_one_step(const ZeroOneConfig& config, int64_t applied_steps) {
  const int64_t local = applied_steps + 1 - config.var_freeze_step;
  if (local > 0) return synchronises(config, local) ? StepKind::regular : StepKind::local;
  return updates_variance(config.var_update_scaler, applied_steps + 1) ? StepKind::whole_gradients
                                                                       : StepKind::gradient_signs;
}

std::string zero_one_text(const OptimizerConfig& config, StepKind kind) {
  const ZeroOneConfig& c = config.zero_one;
  const bool grows = c.var_freeze_step > c.var_update_scaler, waits = c.local_step_clipper > 1;
  switch (kind) {
    case StepKind::whole_gradients:
      return grows ? fmt::format("steps 1 to {}, and up to {} each 2nd, 4th, ...",
                                 c.var_update_scaler, c.var_freeze_step)
                   : fmt::format("steps 1 to {}", c.var_freeze_step);
    case StepKind::gradient_signs:
      return fmt::format("the other steps up to {}", c.var_freeze_step);
    case StepKind::local:
      return fmt::format("the other steps from {} on", c.var_freeze_step + 1);
    case StepKind::regular:
    case StepKind::whole_momentum:  // not of this optimizer
      break;
  }
  return waits ? fmt::format("from step {} on, at intervals of 1 to {}", c.var_freeze_step + 1,
                             c.local_step_clipper)
               : fmt::format("from step {} on", c.var_freeze_step + 1);
}

int64_t open_local_steps(const ZeroOneConfig& config, int64_t applied_steps) {
  int64_t count = 0;
  while (count < applied_steps &&
         zero_one_step(config, applied_steps - 1 - count) == StepKind::local)
    ++count;
  return count;
}

}  // namespace dstrain
