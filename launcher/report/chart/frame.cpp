#include "launcher/report/chart/frame.h"

#include <fmt/format.h>

#include "launcher/report/chart/chart_style.h"
#include "launcher/report/chart/markup.h"

namespace dstrain::report {
namespace {

constexpr double kLetterWidth = 6.6, kSignWidth = 18, kGap = 16;
constexpr size_t kLongestEntry = 44;

std::string sign_svg(const LegendEntry& entry, double x, double y) {
  const size_t colour = entry.colour % kColours;
  switch (entry.sign) {
    case LegendEntry::Sign::line:
      return fmt::format(R"(<path class="l {}" d="M{:.1f} {:.1f}h13"/>)",
                         colour_class(entry.colour), x, y - 4);
    case LegendEntry::Sign::ring:
      return fmt::format(R"(<circle class="o{}" cx="{:.1f}" cy="{:.1f}" r="3"/>)", colour, x + 6,
                         y - 4);
    case LegendEntry::Sign::box:
      return fmt::format(
          R"(<rect class="b a{}" x="{:.1f}" y="{:.1f}" width="11" height="11" rx="2"/>)", colour, x,
          y - 9.5);
    case LegendEntry::Sign::cross:
      break;
  }
  return fmt::format(R"(<path class="x" d="M{:.1f} {:.1f}l6 6m0 -6l-6 6"/>)", x + 3, y - 7);
}

}  // namespace

double text_width(const std::string& text) {
  return kLetterWidth * static_cast<double>(characters_in(text));
}

std::string svg_text(double x, double y, const std::string& classes, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y,
                     classes.empty() ? "" : fmt::format(" class=\"{}\"", classes), escaped(text));
}

Heading heading_svg(const std::string& title, const std::string& values, double width) {
  constexpr double kFirstLine = 24, kTitleLetter = 8;
  const auto fits = static_cast<size_t>((width - 2 * kMargin) / kTitleLetter);
  const std::string shown = shortened(title, fits);
  Heading heading{svg_text(kMargin, kFirstLine, "t", shown), kFirstLine};
  if (values.empty()) return heading;
  if (kTitleLetter * static_cast<double>(characters_in(shown)) + 12 + text_width(values) <
      width - 2 * kMargin) {
    heading.svg += svg_text(width - kMargin, kFirstLine, "e q", values);
  } else {
    heading.bottom += kTextHeight;
    heading.svg += svg_text(kMargin, heading.bottom, "q", values);
  }
  return heading;
}

std::string svg_begin(const Size& size, Place place, const std::string& label) {
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {0:g} {1:g}\"{2} "
      "role=\"img\" aria-label=\"{3}\">\n",
      size.width, size.height,
      place == Place::file ? fmt::format(" width=\"{:g}\" height=\"{:g}\"", size.width, size.height)
                           : "",
      escaped(label));
  if (place == Place::file)
    text += fmt::format("<style>{}</style>\n<rect class=\"z\" width=\"100%\" height=\"100%\"/>\n",
                        chart_style());
  return text;
}

std::string svg_end() {
  return "</svg>\n";
}

Legend legend_svg(const std::vector<LegendEntry>& entries, double x, double y, double width) {
  Legend legend;
  double at = 0;
  for (const LegendEntry& entry : entries) {
    const std::string text = shortened(entry.text, kLongestEntry);
    const double wide = kSignWidth + text_width(text);
    if (legend.height == 0) legend.height = kTextHeight;
    if (at > 0 && at + wide > width) {
      at = 0;
      legend.height += kTextHeight;
    }
    const double row = y + legend.height - kTextHeight;
    legend.svg += sign_svg(entry, x + at, row) + svg_text(x + at + kSignWidth, row, "", text);
    at += wide + kGap;
  }
  return legend;
}

}  // namespace dstrain::report
