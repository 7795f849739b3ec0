// The tables of a page.
#pragma once

#include <string>
#include <vector>

#include "launcher/report/record/run_record.h"

namespace dstrain::report {

// Return HTML: the first lines about one run, and a table of several.
std::string cards_html(const RunRecord& run);
std::string overview_html(const std::vector<RunRecord>& runs);

// Returns a table of each run: of every metric the last, the least and the largest value, as metrics.jsonl has them.
std::string numbers_html(const std::vector<RunRecord>& runs);

// Returns the settings in which runs differ, and those of each run with their origins.
std::string configuration_html(const std::vector<RunRecord>& runs);

// Returns a square in the colour of a run.
std::string swatch_html(size_t run);

}  // namespace dstrain::report
