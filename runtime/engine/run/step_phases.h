// The phases of a step, from its trace. Pure.
#pragma once

#include "runtime/engine/metrics/phase_times.h"
#include "runtime/engine/step/trace.h"

namespace dstrain {

// Returns the times of the phases of a training step, which add up to the trace's whole time. The trace must be
// complete.
StepPhases phases_of(const StepTrace& trace);

}  // namespace dstrain
