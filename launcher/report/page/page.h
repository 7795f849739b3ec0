// The page of a report: HTML that needs nothing else, no network and no script.
#pragma once

#include <string>
#include <vector>

#include "launcher/report/page/plots.h"
#include "launcher/report/record/run_record.h"

namespace dstrain::report {

// `file`: to be kept. `served`: it asks its server again and again whether there is a newer one (kRefreshPath).
enum class PageUse { file, served };

// Where a served page has its script from.
inline constexpr const char* kRefreshPath = "/refresh.js";
std::string refresh_script();

// The Content-Security-Policy of a page: nothing is loaded, and no script runs but the one that refreshes it.
std::string content_policy(PageUse use);

// Returns the page of the runs with pictures of `sections`. `remark`: a sentence at its end, or empty.
std::string page_html(const std::vector<RunRecord>& runs, const std::vector<PlotSection>& sections,
                      PageUse use, const std::string& remark = "");

}  // namespace dstrain::report
