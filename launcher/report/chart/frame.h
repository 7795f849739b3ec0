// Frame: what pictures have in common: their beginning, title and legend.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/report/chart/line_chart.h"

namespace dstrain::report {

// An entry of a legend.
struct LegendEntry {
  enum class Sign { line, ring, box, cross };
  Sign sign = Sign::line;
  size_t colour = 0;
  std::string text;
};

inline constexpr double kTextHeight = 17;  // of a line of a picture's text
inline constexpr double kMargin = 10;      // around a picture

// Returns about the width of a text in pixels, as wide as usual fonts make it.
double text_width(const std::string& text);

// Returns a text element; `classes` may be empty.
std::string svg_text(double x, double y, const std::string& classes, const std::string& text);

// A title at the left, and at the right what the values are; below it where there is no room beside it.
struct Heading {
  std::string svg;
  double bottom = 0;  // the baseline of its last line
};
Heading heading_svg(const std::string& title, const std::string& values, double width);

// Return the tags around the elements of a picture. `label`: what it shows, for those who cannot see it.
std::string svg_begin(const Size& size, Place place, const std::string& label);
std::string svg_end();

// A legend, in as many rows as it needs.
struct Legend {
  std::string svg;
  double height = 0;
};
Legend legend_svg(const std::vector<LegendEntry>& entries, double x, double y, double width);

}  // namespace dstrain::report
