#include "launcher/report/chart/pointed_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "launcher/report/chart/markup.h"
#include "launcher/report/chart/ticks.h"

namespace dstrain::report {
namespace {

constexpr double kStripWidth = 8;
constexpr size_t kMostLines = 12;  // that a title has room for

// What a strip shows: a value of each line, or null.
struct Strip {
  std::vector<const Point*> values;
};

std::string place_text(const LineChart& chart, double x) {
  if (chart.x_unit == Unit::seconds) return fmt::format("{:.1f} s", x);
  return fmt::format("{} {}", chart.x_label, exact_text(x));
}

// Returns the title of a strip; empty if no line has a value there.
std::string title_of(const LineChart& chart, const std::vector<const Line*>& lines,
                     const Strip& strip) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Point* const value = strip.values[i];
    if (value == nullptr) continue;
    if (!text.empty()) text += "\n";
    text += fmt::format("{}, {}: {}", place_text(chart, value->x), lines[i]->name,
                        exact_text(value->y));
  }
  return text;
}

}  // namespace

std::string pointed_values_svg(const LineChart& chart, const StripPlace& place) {
  std::vector<const Line*> lines;
  for (const Line& line : chart.lines)
    if (!line.name.empty() && lines.size() < kMostLines) lines.push_back(&line);
  const double width = place.right - place.left;
  if (lines.empty() || !(width > 0)) return "";
  const auto count = static_cast<size_t>(std::max(1.0, width / kStripWidth));
  const double each = width / static_cast<double>(count);
  std::vector<Strip> strips(count, Strip{std::vector<const Point*>(lines.size())});
  const auto from_middle = [&](const Point& point, size_t strip) {
    return std::abs(place.x_of(point.x) - place.left - each * (static_cast<double>(strip) + 0.5));
  };
  for (size_t i = 0; i < lines.size(); ++i)
    for (const Point& point : lines[i]->points) {
      if (!std::isfinite(point.y) || !std::isfinite(point.x)) continue;
      const double part = (place.x_of(point.x) - place.left) / each;
      const auto at = static_cast<size_t>(std::clamp(part, 0.0, static_cast<double>(count - 1)));
      const Point*& kept = strips[at].values[i];
      if (kept == nullptr || from_middle(point, at) < from_middle(*kept, at)) kept = &point;
    }
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const std::string title = title_of(chart, lines, strips[i]);
    if (title.empty()) continue;
    text += fmt::format(
        "<rect class=\"h\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"><title>{}</title></rect>\n",
        place.left + each * static_cast<double>(i), place.top, each, place.bottom - place.top,
        escaped(title));
  }
  return text;
}

}  // namespace dstrain::report
