#include "runtime/plan/step_kinds.h"

#include <fmt/core.h>

#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/residency.h"

namespace dstrain {
namespace {

const SignRule* signs_of(const Job& job) {
  return optimizer_rule(job.optimizer.kind).signs;
}

const StepPattern* pattern_of(const Job& job) {
  return signs_of(job) ? signs_of(job)->pattern : nullptr;
}

// Returns how many updates there are before the first regular one. An optimizer freezes its state on one rank too; a
// hook needs ranks to send gradients to.
int64_t first_updates(const Job& job) {
  if (const SignRule* signs = signs_of(job)) return signs->freeze_step(job.optimizer);
  if (job.hook.kind == HookKind::post_local_sgd && local_groups(job) == 1) return 0;
  return job.hook.kind != HookKind::none && job.state_ranks() > 1 ? job.hook.start : 0;
}

}  // namespace

std::vector<StepKind> step_kinds(const Job& job) {
  if (const StepPattern* pattern = pattern_of(job)) return pattern->kinds(job.optimizer);
  std::vector<StepKind> kinds{StepKind::regular};
  if (first_updates(job) > 0) kinds.push_back(StepKind::whole_gradients);
  if (local_groups(job) > 1 && job.hook.period > 1) kinds.push_back(StepKind::local);
  if (gathers_momentum(job)) kinds.push_back(StepKind::whole_momentum);
  return kinds;
}

bool gathers_momentum(const Job& job) {
  return signs_of(job) && residency_of(job, place_of(job, 0)).optimizer != Held::whole;
}

StepKind kind_of_step(const Job& job, int64_t applied_steps, std::optional<StepKind> last) {
  if (const StepPattern* pattern = pattern_of(job))
    return pattern->kind_of_step(job.optimizer, applied_steps);
  const int64_t before = first_updates(job);
  if (applied_steps < before) return StepKind::whole_gradients;
  const bool averages = local_groups(job) == 1 || (applied_steps - before) % job.hook.period == 0;
  if (!averages) return StepKind::local;
  const bool has_momentum = last && *last != StepKind::whole_gradients;
  return has_momentum || !gathers_momentum(job) ? StepKind::regular : StepKind::whole_momentum;
}

bool sends_signs(const Job& job, const Place& place, StepKind kind) {
  return keeps_gradients(job, kind) && kind != StepKind::local && place.ranks() > 1;
}

GroupsDiffer groups_differ(const Job& job, int64_t applied_steps) {
  if (local_groups(job) == 1 || applied_steps <= first_updates(job)) return {};
  return {.weights = kind_of_step(job, applied_steps - 1, StepKind::regular) == StepKind::local,
          .state = true};
}

std::string steps_text(const Job& job, StepKind kind) {
  if (const StepPattern* pattern = pattern_of(job)) return pattern->steps_text(job.optimizer, kind);
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
