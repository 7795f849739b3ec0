#include "runtime/optim/optimizer_state.h"

#include <cmath>

#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/optimizer_rules.h"

namespace dstrain {

void set_optimizer_state(const Job& job, StepState& state) {
  const OptimizerConfig& o = job.optimizer;
  const OptimizerRule& rule = optimizer_rule(o.kind);
  const Rate rate = rate_at(job.schedule, o, state.applied_steps);
  state.lr = static_cast<float>(rate.lr);
  state.adam_lr = static_cast<float>(rate.adam_lr);
  state.beta1 = rate.beta1;
  state.beta2 = rate.beta2;
  const auto correction = [&](double beta) {
    const auto t = static_cast<double>(state.applied_steps + 1);
    return rule.corrects_bias && o.bias_correction ? static_cast<float>(1.0 - std::pow(beta, t))
                                                   : 1;
  };
  state.bias_correction1 = correction(rate.beta1);
  state.bias_correction2 = correction(rate.beta2);
  if (!rule.signs || !rule.signs->open_local_steps) return;
  state.local_lr = 0;
  for (int64_t i = rule.signs->open_local_steps(o, state.applied_steps); i > 0; --i)
    state.local_lr += static_cast<float>(rate_at(job.schedule, o, state.applied_steps - i).lr);
  // Until then gradients are packed, and local steps from then on.
  state.drop_errors = state.applied_steps == rule.signs->freeze_step(o) ? 1 : 0;
}

}  // namespace dstrain
