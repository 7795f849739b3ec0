// What all plans end with, and plans of forward passes alone.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// Returns the plan of a program: the order of its step, and its channels. Nothing has an address yet.
Plan finish_plan(Program program, const Job& job, Place place, std::vector<StageTask> tasks,
                 int64_t micro_batches, int threads);

// Returns the plan of a forward pass, which is that of a pipeline's stage where the job has several.
Plan forward_plan(Program program, const Job& job, Place place, const PlanInputs& inputs);

}  // namespace dstrain
