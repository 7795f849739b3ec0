// The part of verify() about gathered parameters.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

// Proves that every gather is used, and that no more parameters are gathered at a time than the plan's limit
// allows. Throws InternalError.
void verify_gathers(const Plan& plan);

}  // namespace dstrain
