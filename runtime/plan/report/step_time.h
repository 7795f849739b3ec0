// Step time: estimates of how long the work of a plan takes on a machine of a device's kind, from operations and
// traffic. They are rough: enough to put settings in order and to draw a step, not to predict one. Pure functions.
#pragma once

#include <span>
#include <string>

#include "runtime/plan/pipeline/simulate.h"
#include "runtime/plan/plan.h"

namespace dstrain {

// Returns the seconds of one execution of an instruction; 0 for collectives and messages.
double instruction_seconds(const Program& program, const Instruction& op,
                           const std::string& device);

// Returns the seconds of a kernel on the device, wherever the plan has it run.
double kernel_seconds_on_device(const Program& program, const Instruction& op,
                                const std::string& device);

// Returns the rates that these estimates assume, in words.
std::string rates_text(const std::string& device, DType dtype);

// Returns the seconds of a step of one rank, if nothing of it overlaps.
double step_seconds(const Plan& plan, const std::string& device);

// Returns the seconds of each phase of one micro-batch in a chunk, without its collectives and messages.
PhaseSeconds phase_seconds(const Plan& plan, int chunk, const std::string& device);

// Returns the seconds of the largest message that the rank sends; 0 if it sends none.
double message_seconds(const Plan& plan, const std::string& device);

// Returns when the stages of a pipeline do their slots, by phase_seconds and the longest message_seconds. `stages`
// has a plan of each stage, in their order. Throws InternalError if a plan has another order of slots.
PipelineTimes pipeline_times(const PipelineOrders& orders, std::span<const Plan* const> stages,
                             const std::string& device);

}  // namespace dstrain
