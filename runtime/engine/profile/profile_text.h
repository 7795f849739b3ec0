// The report of flops_profiler, in DeepSpeed's form. Pure.
#pragma once

#include <string>

#include "runtime/config/job.h"
#include "runtime/engine/profile/step_profile.h"

namespace dstrain {

// Return numbers with two decimals and a unit, as DeepSpeed's profiler writes them: "124.44 M" parameters ("B" for 1e9),
// "145.83 GMACs", "291.66 G", "1.21 TFLOPS", "98.1 ms".
std::string parameters_text(double parameters);
std::string macs_text(double macs);
std::string flops_text(double flops);
std::string flops_rate_text(double flops_per_second);
std::string seconds_text(double seconds);

// Returns the report: a summary, the modules with the most parameters, MACs and time at each depth, and where the options
// say so the tree of all modules. Lines end with line breaks.
std::string profile_text(const StepProfile& profile, const FlopsProfilerConfig& options);

}  // namespace dstrain
