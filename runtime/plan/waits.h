// Order between computation and communication. The collectives and messages of a channel complete in the order in
// which they start, so an instruction waits for a number of each channel: how many of the step must be complete.
// The numbers follow from the addresses alone.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

// Computes `waits` of a placed plan. Without `overlap` the next instruction waits for every collective, but with
// `overlap_tensor` not for those of the tensor group; messages are awaited where their memory is used.
void order_communication(Plan& plan, bool overlap, bool overlap_tensor);

}  // namespace dstrain
