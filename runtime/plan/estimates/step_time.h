// Step time: estimates of how long the work of a plan takes at the rates of a machine. Pure functions.
#pragma once

#include <span>

#include "runtime/plan/cost/machine_rates.h"
#include "runtime/plan/pipeline/simulate.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// Returns the seconds of a step of one rank, if nothing of it overlaps.
double step_seconds(const Plan& plan, const MachineRates& rates);

// Returns the seconds of each phase of one micro-batch in a chunk, without its collectives and messages.
PhaseSeconds phase_seconds(const Plan& plan, int chunk, const MachineRates& rates);

// Returns the seconds of the largest message that the rank sends; 0 if it sends none.
double message_seconds(const Plan& plan, const MachineRates& rates);

// Returns when the stages of a pipeline do their slots, by phase_seconds and the longest message_seconds. `stages`
// has a plan of each stage, in their order. Throws InternalError if a plan has another order of slots.
PipelineTimes pipeline_times(const PipelineOrders& orders, std::span<const Plan* const> stages,
                             const MachineRates& rates);

}  // namespace dstrain
