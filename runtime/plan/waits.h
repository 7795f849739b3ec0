// Order between computation and communication. The collectives of a rank complete in the order in which they
// start, so an instruction waits for a number: how many collectives of the step must be complete. The number
// follows from the addresses alone.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

// Computes `waits` of a placed plan. Without `overlap` the next instruction waits for every collective.
void order_communication(Plan& plan, bool overlap);

}  // namespace dstrain
