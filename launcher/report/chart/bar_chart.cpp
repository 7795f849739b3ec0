#include "launcher/report/chart/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/report/chart/chart_style.h"
#include "launcher/report/chart/frame.h"
#include "launcher/report/chart/markup.h"

namespace dstrain::report {
namespace {

constexpr double kRow = 22, kBar = 14, kAxisRoom = 24;
constexpr size_t kLongestLabel = 26;

}  // namespace

std::string bar_chart_svg(const BarChart& chart, double width, Place place) {
  double label_width = 0, text_room = 0, largest = 0;
  for (const Bar& bar : chart.bars) {
    label_width = std::max(label_width, text_width(shortened(bar.label, kLongestLabel)));
    text_room = std::max(text_room, text_width(bar.text));
    double sum = 0;
    for (const BarPart& part : bar.parts) sum += part.value;
    largest = std::max(largest, sum);
  }
  if (!(largest > 0)) largest = 1;
  std::vector<LegendEntry> entries;
  for (size_t i = 0; i < chart.parts.size(); ++i)
    entries.push_back({LegendEntry::Sign::box, i, chart.parts[i]});
  const Heading heading = heading_svg(chart.title, chart.x_label, width);
  const Legend legend =
      legend_svg(entries, kMargin, heading.bottom + kTextHeight + 2, width - 2 * kMargin);
  const double top = heading.bottom + 10 + legend.height;
  const double bottom = top + kRow * static_cast<double>(chart.bars.size());
  const Size size{width, bottom + kAxisRoom};
  std::string text = svg_begin(size, place, chart.title) + heading.svg + legend.svg;
  const double left = kMargin + label_width + 8;
  const double room = std::max(width - kMargin - left - text_room - 8, 20.0);
  for (const Tick& tick :
       linear_ticks(0, largest, std::max(1, static_cast<int>(room / 55)), chart.unit)) {
    const double x = left + room * tick.value / largest;
    text += fmt::format("<path class=\"g\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", x, top, bottom) +
            svg_text(x, bottom + 15, "m q", tick.label);
  }
  double y = top + (kRow - kBar) / 2;
  for (const Bar& bar : chart.bars) {
    text += svg_text(left - 8, y + kBar - 3, "e", shortened(bar.label, kLongestLabel));
    double x = left;
    for (const BarPart& part : bar.parts) {
      const double wide = room * part.value / largest;
      text += fmt::format(
          "<rect class=\"b a{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:g}\"/>\n",
          part.colour % kColours, x, y, std::max(wide, 0.0), kBar);
      x += wide;
    }
    text += svg_text(x + 6, y + kBar - 3, "q", bar.text);
    y += kRow;
  }
  return text + svg_end();
}

}  // namespace dstrain::report
