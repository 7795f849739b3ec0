// LineChart: curves over a common axis, as SVG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/report/chart/point.h"
#include "launcher/report/chart/ticks.h"

namespace dstrain::report {

// How a line is drawn: `plain`; `faint` below the others, as what has been measured is beside its mean; `marked` with a
// ring for each value, where there are few.
enum class LineLook { plain, faint, marked };

struct Line {
  std::vector<Point> points;
  size_t colour = 0;
  LineLook look = LineLook::plain;
  std::string label;   // in the legend; empty: it has no place there
  std::string name{};  // before its values where the reader points; empty: they are not shown there
};

struct LineChart {
  std::string title;
  std::string y_label{}, x_label{};  // what the axes are, with their units
  std::vector<Line> lines{};
  std::vector<double>
      crosses{};  // x of values that are missing, such as losses that are no finite numbers
  std::string cross_label{};
  bool logarithmic = false;
  bool from_zero =
      false;  // the axis of values begins with 0, where none is below and it is not logarithmic
  Unit x_unit = Unit::number, y_unit = Unit::number;

  // Returns whether any line has a point that the chart can show.
  bool has_points() const;
};

struct Size {
  double width = 0, height = 0;
};

// A picture stands in a page, which has chart_style(), or in a file of its own, which brings it.
enum class Place { page, file };

// Returns the picture: well-formed XML, whatever the texts are. It is higher than asked for where its legend has more than
// two rows.
std::string line_chart_svg(const LineChart& chart, const Size& asked, Place place);

}  // namespace dstrain::report
