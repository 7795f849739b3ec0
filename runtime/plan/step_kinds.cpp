#include "runtime/plan/step_kinds.h"

#include <fmt/core.h>

#include "runtime/optim/optimizer_rules.h"
#include "runtime/optim/zero_one_steps.h"
#include "runtime/plan/residency.h"

namespace dstrain {
namespace {

// Returns how many updates there are before the first regular one. An optimizer freezes its state on one rank too; a
// hook needs ranks to send gradients to.
int64_t first_updates(const Job& job) {
  if (freezes(job.optimizer)) return job.optimizer.freeze_step;
  if (job.hook.kind == HookKind::post_local_sgd && local_groups(job) == 1) return 0;
  return job.hook.kind != HookKind::none && job.state_ranks() > 1 ? job.hook.start : 0;
}

bool is_zero_one(const Job& job) {
  return job.optimizer.kind == OptimizerKind::zero_one_adam;
}

StepKind kind_of(ZeroOneStep step) {
  constexpr StepKind kinds[] = {StepKind::whole_gradients, StepKind::gradient_signs,
                                StepKind::local, StepKind::regular};
  return kinds[static_cast<int>(step)];
}

std::string zero_one_text(const ZeroOneConfig& c, StepKind kind) {
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

}  // namespace

std::vector<StepKind> step_kinds(const Job& job) {
  std::vector<StepKind> kinds{StepKind::regular};
  if (is_zero_one(job)) {
    const ZeroOneConfig& c = job.optimizer.zero_one;
    kinds.push_back(StepKind::whole_gradients);
    if (c.var_freeze_step > c.var_update_scaler) kinds.push_back(StepKind::gradient_signs);
    if (c.local_step_clipper > 1) kinds.push_back(StepKind::local);
    return kinds;
  }
  if (first_updates(job) > 0) kinds.push_back(StepKind::whole_gradients);
  if (local_groups(job) > 1 && job.hook.period > 1) kinds.push_back(StepKind::local);
  if (gathers_momentum(job)) kinds.push_back(StepKind::whole_momentum);
  return kinds;
}

bool gathers_momentum(const Job& job) {
  return optimizer_rule(job.optimizer.kind).slices_frozen &&
         residency_of(job, place_of(job, 0)).optimizer != Held::whole;
}

StepKind kind_of_step(const Job& job, int64_t applied_steps) {
  if (is_zero_one(job)) return kind_of(zero_one_step(job.optimizer.zero_one, applied_steps));
  const int64_t before = first_updates(job);
  if (applied_steps < before) return StepKind::whole_gradients;
  const bool averages = local_groups(job) == 1 || (applied_steps - before) % job.hook.period == 0;
  return averages ? StepKind::regular : StepKind::local;
}

bool keeps_gradients(const Job& job, StepKind kind) {
  return kind != StepKind::whole_gradients && freezes(job.optimizer);
}

bool sends_signs(const Job& job, const Place& place, StepKind kind) {
  return keeps_gradients(job, kind) && kind != StepKind::local && place.ranks() > 1;
}

GroupsDiffer groups_differ(const Job& job, int64_t applied_steps) {
  if (local_groups(job) == 1 || applied_steps <= first_updates(job)) return {};
  return {.weights = kind_of_step(job, applied_steps - 1) == StepKind::local, .state = true};
}

std::string steps_text(const Job& job, StepKind kind) {
  if (is_zero_one(job)) return zero_one_text(job.optimizer.zero_one, kind);
  const int64_t before = first_updates(job);
  if (kind == StepKind::regular && local_groups(job) > 1 && job.hook.period > 1)
    return fmt::format("steps {}, {}, ... every {}", before + 1, before + 1 + job.hook.period,
                       job.hook.period);
  if (kind == StepKind::local) return fmt::format("the others from step {} on", before + 2);
  if (kind == StepKind::whole_momentum)
    return fmt::format("step {}, and the first of a later resume", before + 1);
  if (kind == StepKind::regular && gathers_momentum(job))
    return fmt::format("from step {} on", before + 2);
  if (kind == StepKind::regular)
    return before > 0 ? fmt::format("from step {} on", before + 1) : "all steps";
  return before == 1 ? "step 1" : fmt::format("steps 1 to {}", before);
}

}  // namespace dstrain
