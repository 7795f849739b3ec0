#include "launcher/report/chart/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "launcher/report/chart/chart_style.h"
#include "launcher/report/chart/frame.h"
#include "launcher/report/chart/pointed_values.h"

namespace dstrain::report {
namespace {

constexpr double kBelow = 38;           // the plane: ticks, and what they are of
constexpr double kUsualLegendRows = 2;  // for more of them a picture is higher
constexpr size_t kMostRings = 60;       // a line with more values has none

// The least and the largest value on an axis.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

bool is_shown(const Point& point, bool logarithmic) {
  return std::isfinite(point.y) && std::isfinite(point.x) && (!logarithmic || point.y > 0);
}

// Gives a range a little room, so that no line lies on the picture's edge.
Range with_room(Range range, bool logarithmic, bool from_zero) {
  if (logarithmic) {
    const double room = range.high > range.low ? std::pow(range.high / range.low, 0.04) : 1.5;
    return {range.low / room, range.high * room};
  }
  double room = 0.05 * (range.high - range.low);
  if (!(room > std::abs(range.high) * 1e-9))
    room = range.high != 0 ? std::abs(range.high) * 0.1 : 1;
  if (from_zero && range.low >= 0) return {0, range.high + room};
  return {range.low - room, range.high + room};
}

// Where values lie in the picture.
class Plane {
 public:
  Plane(const Range& x, const Range& y, bool logarithmic) : x_(x), y_(y), log_(logarithmic) {}

  double left = 0, right = 0, top = 0, bottom = 0;

  double x_of(double value) const {
    return left + (right - left) * (value - x_.low) / (x_.high - x_.low);
  }
  double y_of(double value) const {
    const double part = log_ ? std::log(value / y_.low) / std::log(y_.high / y_.low)
                             : (value - y_.low) / (y_.high - y_.low);
    return bottom - (bottom - top) * part;
  }
  std::vector<Tick> x_ticks(int about, Unit unit) const {
    return linear_ticks(x_.low, x_.high, about, unit);
  }
  std::vector<Tick> y_ticks(int about, Unit unit) const {
    return log_ ? log_ticks(y_.low, y_.high, about, unit)
                : linear_ticks(y_.low, y_.high, about, unit);
  }

 private:
  Range x_, y_;
  bool log_;
};

// Returns the plane of all that a chart shows; its place in the picture is open yet.
Plane plane_of(const LineChart& chart) {
  Range x, y;
  for (const Line& line : chart.lines)
    for (const Point& point : line.points)
      if (is_shown(point, chart.logarithmic)) {
        x.take(point.x);
        y.take(point.y);
      }
  for (const double cross : chart.crosses) x.take(cross);
  if (x.empty()) x = {0, 1};
  if (y.empty()) y = {chart.logarithmic ? 0.1 : 0, 1};
  if (!(x.high > x.low)) x = {x.low - 0.5, x.high + 0.5};
  return {x, with_room(y, chart.logarithmic, chart.from_zero), chart.logarithmic};
}

std::string path_of(const Line& line, const Plane& plane, bool logarithmic) {
  std::string path;
  bool down = false;  // the pen
  for (const Point& point : line.points) {
    if (!is_shown(point, logarithmic)) {
      down = false;
      continue;
    }
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", down ? "L" : "M",
                   plane.x_of(point.x), plane.y_of(point.y));
    down = true;
  }
  return path;
}

std::string line_svg(const Line& line, const Plane& plane, bool logarithmic) {
  const std::string path = path_of(line, plane, logarithmic);
  if (path.empty()) return "";
  std::string text =
      fmt::format("<path class=\"{} {}\" d=\"{}\"/>\n", line.look == LineLook::faint ? "f" : "l",
                  colour_class(line.colour), path);
  // A single value would be no line at all.
  if (line.look != LineLook::marked && path.find('L') != std::string::npos) return text;
  if (line.points.size() > kMostRings) return text;
  for (const Point& point : line.points)
    if (is_shown(point, logarithmic))
      text += fmt::format("<circle class=\"o{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n",
                          line.colour % kColours, plane.x_of(point.x), plane.y_of(point.y));
  return text;
}

std::vector<LegendEntry> legend_of(const LineChart& chart) {
  std::vector<LegendEntry> entries;
  for (const Line& line : chart.lines)
    if (!line.label.empty())
      entries.push_back(
          {line.look == LineLook::marked ? LegendEntry::Sign::ring : LegendEntry::Sign::line,
           line.colour, line.label});
  if (!chart.crosses.empty()) entries.push_back({LegendEntry::Sign::cross, 0, chart.cross_label});
  return entries;
}

// Leaves out labels that would touch the one before them.
std::vector<Tick> without_touching(const std::vector<Tick>& ticks, const Plane& plane) {
  std::vector<Tick> kept;
  double end = -1e9;
  for (const Tick& tick : ticks) {
    const double x = plane.x_of(tick.value), half = text_width(tick.label) / 2;
    if (x - half < end + 8) continue;
    end = x + half;
    kept.push_back(tick);
  }
  return kept;
}

std::string axes_svg(const LineChart& chart, const Plane& plane, const std::vector<Tick>& x_ticks,
                     const std::vector<Tick>& y_ticks, const Size& size) {
  std::string text;
  for (const Tick& tick : y_ticks) {
    const double y = plane.y_of(tick.value);
    text += fmt::format("<path class=\"g\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", plane.left, y,
                        plane.right) +
            svg_text(plane.left - 6, y + 4, "e q", tick.label);
  }
  text += fmt::format("<path class=\"g\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", plane.left, plane.bottom,
                      plane.right);
  for (const Tick& tick : without_touching(x_ticks, plane)) {
    const double x = plane.x_of(tick.value), half = text_width(tick.label) / 2;
    text += fmt::format("<path class=\"g\" d=\"M{:.1f} {:.1f}v4\"/>\n", x, plane.bottom) +
            svg_text(std::min(x, size.width - 2 - half), plane.bottom + 16, "m q", tick.label);
  }
  return text + svg_text((plane.left + plane.right) / 2, plane.bottom + 32, "m q", chart.x_label);
}

}  // namespace

bool LineChart::has_points() const {
  return std::ranges::any_of(lines, [this](const Line& line) {
    return std::ranges::any_of(line.points,
                               [this](const Point& point) { return is_shown(point, logarithmic); });
  });
}

std::string line_chart_svg(const LineChart& chart, const Size& asked, Place place) {
  Plane plane = plane_of(chart);
  const double inner = asked.width - 2 * kMargin;
  const Heading heading = heading_svg(chart.title, chart.y_label, asked.width);
  const double top = heading.bottom + kTextHeight + 2;
  const Legend legend = legend_svg(legend_of(chart), kMargin, top, inner);
  const Size size{asked.width,
                  asked.height + std::max(0.0, legend.height - kUsualLegendRows * kTextHeight)};
  std::string text = svg_begin(size, place, chart.title) + heading.svg + legend.svg;
  plane.top = top + legend.height - 6;
  plane.bottom = std::max(size.height - kBelow, plane.top + 20);
  const int rows = std::clamp(static_cast<int>((plane.bottom - plane.top) / 38), 2, 8);
  const std::vector<Tick> y_ticks = plane.y_ticks(rows, chart.y_unit);
  double widest = 0;
  for (const Tick& tick : y_ticks) widest = std::max(widest, text_width(tick.label));
  plane.left = kMargin + widest + 6;
  plane.right = size.width - kMargin - 4;
  const int columns = std::clamp(static_cast<int>((plane.right - plane.left) / 70), 2, 12);
  text += axes_svg(chart, plane, plane.x_ticks(columns, chart.x_unit), y_ticks, size);
  for (const bool faint : {true, false})
    for (const Line& line : chart.lines)
      if ((line.look == LineLook::faint) == faint) text += line_svg(line, plane, chart.logarithmic);
  for (const double cross : chart.crosses)
    text += fmt::format("<path class=\"x\" d=\"M{:.1f} {:.1f}l6 6m0 -6l-6 6\"/>\n",
                        plane.x_of(cross) - 3, plane.bottom - 8);
  const StripPlace strips{plane.left, plane.right, plane.top, plane.bottom,
                          [&plane](double x) { return plane.x_of(x); }};
  return text + pointed_values_svg(chart, strips) + svg_end();
}

}  // namespace dstrain::report
