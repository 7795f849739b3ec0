// Order between computation and what runs beside it. The collectives and messages of a channel complete in the order in
// which they start. So it is enough to say, for each issue and channel, how many operations of the step must be
// complete (Plan::waits). The numbers follow from the addresses alone.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

// Computes Plan::waits of a placed plan. Without `overlap` every collective is complete before the next instruction
// starts, but with `overlap_tensor` those of the tensor group are not; messages are waited for where their memory is used.
void order_communication(Plan& plan, bool overlap, bool overlap_tensor);

}  // namespace dstrain
