// BarChart: parts of quantities, one bar below the other, as SVG.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/report/chart/line_chart.h"

namespace dstrain::report {

struct BarPart {
  double value = 0;  // from 0 up
  size_t colour = 0;
};

struct Bar {
  std::string label;
  std::vector<BarPart> parts;  // one behind the other
  std::string text;            // at the bar's end
};

struct BarChart {
  std::string title, x_label;
  std::vector<Bar> bars{};
  std::vector<std::string> parts{};  // what the colours are, from 0 on; empty: there is one
  Unit unit = Unit::number;
};

// Returns the picture, as high as its bars are many: well-formed XML, whatever the texts are.
std::string bar_chart_svg(const BarChart& chart, double width, Place place);

}  // namespace dstrain::report
