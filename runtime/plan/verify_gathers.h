// The part of verify() that knows gathers.
#pragma once

#include "runtime/plan/plan.h"

namespace dstrain {

// Proves that no gather is for nothing, and that no more parameters are gathered at a time than the
// plan's limit says. Throws InternalError.
void verify_gathers(const Plan& plan);

}  // namespace dstrain
