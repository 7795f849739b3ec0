// The pictures of a report: which ones runs have recorded values for.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "launcher/report/chart/bar_chart.h"
#include "launcher/report/chart/line_chart.h"
#include "launcher/report/record/run_record.h"

namespace dstrain::report {

struct Plot {
  std::string id;  // the name of its file, without ".svg"
  std::variant<LineChart, BarChart> chart;
  bool wide = false;      // it has the page's whole width
  bool log_twin = false;  // there is one with a logarithmic axis, too, whose id ends with "_log"
};

// Pictures under a heading.
struct PlotSection {
  std::string id, heading;
  std::vector<Plot> plots;
  std::vector<std::string> lines{};  // sentences below them
};

// Returns the sections that have a picture. Curves of several runs are in one picture, in the order of the runs.
std::vector<PlotSection> plots_of(const std::vector<RunRecord>& runs);

// Returns a plot's twin with a logarithmic axis.
Plot log_twin_of(const Plot& plot);

// Returns a picture for a file of its own.
std::string plot_file(const Plot& plot);

}  // namespace dstrain::report
