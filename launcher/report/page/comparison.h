// Comparisons of runs as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "launcher/report/record/run_record.h"

namespace dstrain::report {

// Returns a table for a terminal: a column for each run, a line for each number that any of them has, and the settings
// in which they differ.
std::string comparison_text(const std::vector<RunRecord>& runs);

// Returns the same as JSON (docs/formats.md), numbers in full, null where a run has none.
std::string comparison_json(const std::vector<RunRecord>& runs);

}  // namespace dstrain::report
