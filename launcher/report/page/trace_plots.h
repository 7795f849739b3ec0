// The pictures of where the time of a step went, of runs that have written a trace.
#pragma once

#include <vector>

#include "launcher/report/page/plots.h"

namespace dstrain::report {

// Adds the pictures of the runs' traces, and a line about each trace.
void add_trace_plots(const std::vector<RunRecord>& runs, PlotSection& section);

}  // namespace dstrain::report
