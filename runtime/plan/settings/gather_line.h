// What a tensor group keeps of the rows that it gathers for products.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace dstrain {

// Returns a line with the memory of a rank and the bytes that it sends in a step where it keeps rows that its tensor group
// gathers, and where the backward pass gathers them again (dstrain.gather_again), and which of the two the job does; empty
// where that makes no difference. `rank`: whose stage is meant. Plans the job. Pure.
std::string gather_line(const Job& job, int rank, const PlanInputs& inputs);

}  // namespace dstrain
