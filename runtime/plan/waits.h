// The edges between computation and communication. Collectives of a rank complete in the order they
// are started, so all that an instruction can wait for is a number: how many of the step's collectives
// must be complete. It follows from the addresses alone.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

// Computes `waits` of a placed plan. Without `overlap` a collective is awaited where it is started.
void order_communication(Plan& plan, bool overlap);

}  // namespace dstrain
