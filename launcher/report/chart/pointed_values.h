// The values of a chart at the place to which the reader points, as browsers show them without a script: titles of narrow
// strips that cover the picture.
#pragma once

#include <functional>
#include <string>

#include "launcher/report/chart/line_chart.h"

namespace dstrain::report {

// The place of the strips in the picture, and that of a value of the horizontal axis.
struct StripPlace {
  double left = 0, right = 0, top = 0, bottom = 0;
  std::function<double(double x)> x_of;
};

// Returns the strips. Each shows of every line with a name its value nearest to the middle of the strip, in full.
std::string pointed_values_svg(const LineChart& chart, const StripPlace& place);

}  // namespace dstrain::report
