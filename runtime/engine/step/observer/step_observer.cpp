#include "runtime/engine/step/observer/step_observer.h"

#include "runtime/ir/rule.h"

namespace dstrain {

ObservedStep::ObservedStep(StepObserver& observer, const Plan& plan, const Arenas& arenas,
                           const StepState& state)
    : observer_(observer),
      plan_(plan),
      arenas_(arenas),
      state_(state),
      posted_(static_cast<size_t>(plan.channels)),
      reported_(static_cast<size_t>(plan.channels)) {
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Instruction& op = issue(i).instruction();
    if (is_posted(op.op)) posted_[static_cast<size_t>(op.channel)].push_back(i);
  }
}

void ObservedStep::completed(std::span<const int32_t> counts) {
  for (size_t c = 0; c < counts.size(); ++c)
    for (; reported_[c] < static_cast<size_t>(counts[c]); ++reported_[c])
      after(posted_[c][reported_[c]]);
}

}  // namespace dstrain
