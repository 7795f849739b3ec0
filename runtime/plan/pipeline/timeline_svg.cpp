#include <fmt/format.h>

#include <array>
#include <string_view>

#include "runtime/plan/pipeline/timeline.h"

namespace dstrain {
namespace {

// Sizes in pixels.
constexpr double kPlotWidth = 1080, kRowHeight = 30, kSlotHeight = 24, kMargin = 16;
constexpr double kLabelWidth = 70, kTop = 66, kLegendHeight = 34;
constexpr double kLetterWidth = 7;  // of a label, about

// The colours of a phase: of a stage's even chunks, which have white labels, and of its odd ones.
struct PhaseColours {
  std::string_view name, even, odd;
};
constexpr std::array<PhaseColours, kPhases> kColours = {
    {{"forward", "#2f6fb5", "#a9cdf0"},
     {"backward", "#c2571a", "#f7c59f"},
     {"weight gradients", "#3b8544", "#b5dcb4"}}};

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else
      safe += c;
  }
  return safe;
}

std::string svg_text(double x, double y, std::string_view attributes, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes,
                     escaped(text));
}

std::string svg_box(double x, double y, double width, double height, std::string_view fill) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\"", x, y, width,
      height, fill);
}

// Returns the box of a task, with its label if that fits.
std::string svg_slot(const StageTask& task, const TaskTime& time, double scale, double y) {
  const PhaseColours& colours = kColours[static_cast<size_t>(task.phase)];
  const bool odd = task.chunk % 2 == 1;
  const double x = kMargin + kLabelWidth + time.begin * scale;
  const double width = (time.end - time.begin) * scale;
  std::string text = svg_box(x, y, width, kSlotHeight, odd ? colours.odd : colours.even);
  text += fmt::format(" stroke=\"white\"><title>{}, {:g} to {:g}</title></rect>\n", task_text(task),
                      time.begin, time.end);
  const std::string label = fmt::format("{}", task.micro);
  if (static_cast<double>(label.size() + 1) * kLetterWidth <= width)
    text += svg_text(x + width / 2, y + kSlotHeight / 2 + 4,
                     odd ? " class=\"odd\"" : " class=\"even\"", label);
  return text;
}

std::string svg_legend(bool split, bool chunks, double y) {
  std::string text;
  double x = kMargin + kLabelWidth;
  for (const PhaseColours& colours : kColours) {
    if (&colours == &kColours.back() && !split) continue;
    const auto entry = [&](std::string_view fill, const std::string& name) {
      text += svg_box(x, y, 14, 14, fill) + "/>\n" + svg_text(x + 20, y + 12, "", name);
      x += 40 + kLetterWidth * static_cast<double>(name.size());
    };
    entry(colours.even, std::string(colours.name));
    if (chunks) entry(colours.odd, fmt::format("{}, odd chunks", colours.name));
  }
  return text;
}

}  // namespace

std::string timeline_svg(const std::string& title, const PipelineOrders& orders,
                         const PipelineTimes& times) {
  const std::string heading = timeline_heading(orders, times);
  const double rows = kRowHeight * static_cast<double>(orders.stages());
  const double width = kLabelWidth + kPlotWidth + 2 * kMargin;
  const double height = kTop + rows + kLegendHeight + kMargin;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<style>.even{{fill:white;text-anchor:middle}}.odd{{fill:#222;text-anchor:middle}}</style>\n",
      width, height);
  text += svg_box(0, 0, width, height, "white") + "/>\n";
  text += svg_text(kMargin, 26, " font-size=\"17\" font-weight=\"bold\"", title);
  text += svg_text(kMargin, 46, " fill=\"#444\"", heading);
  const double scale = times.length > 0 ? kPlotWidth / times.length : 0;
  bool split = false, chunks = false;
  for (size_t stage = 0; stage < orders.stages(); ++stage) {
    const double y = kTop + kRowHeight * static_cast<double>(stage);
    text += svg_text(kMargin, y + kSlotHeight / 2 + 4, "", fmt::format("stage {}", stage));
    text += svg_box(kMargin + kLabelWidth, y, kPlotWidth, kSlotHeight, "#eeeeee") + "/>\n";
    for (size_t i = 0; i < orders.tasks[stage].size(); ++i) {
      const StageTask& task = orders.tasks[stage][i];
      split = split || task.phase == Phase::weight_grad;
      chunks = chunks || task.chunk > 0;
      text += svg_slot(task, times.tasks[stage][i], scale, y);
    }
  }
  return text + svg_legend(split, chunks, kTop + rows + 14) + "</svg>\n";
}

}  // namespace dstrain
