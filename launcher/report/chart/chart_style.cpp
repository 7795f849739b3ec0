#include "launcher/report/chart/chart_style.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace dstrain::report {
namespace {

constexpr std::array<std::string_view, kColours> kLight = {
    "#0069ad", "#cf5a00", "#00855f", "#b04a8f", "#977000", "#3f97c9", "#4b4f56"};
constexpr std::array<std::string_view, kColours> kDark = {
    "#56a8ee", "#f2894a", "#35c79c", "#e59aca", "#ecc04e", "#a3dcff", "#c9ced6"};

constexpr std::string_view kShapes =
    ".plot{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
    "font-size:12px;font-variant-numeric:tabular-nums}"
    ".plot .l{fill:none;stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round}"
    ".plot .f{fill:none;stroke-width:1;stroke-linejoin:round}"
    ".plot .d{stroke-dasharray:6 4}"
    ".plot .t{font-size:13.5px;font-weight:600}"
    ".plot .e{text-anchor:end}.plot .m{text-anchor:middle}"
    ".plot .g{stroke-width:1;shape-rendering:crispEdges}"
    ".plot .b{stroke:none}"
    ".plot .h{fill:transparent}.plot .h:hover{fill:#8a94a3;fill-opacity:.16}";

// Returns the rules that depend on whether the page is dark.
std::string colour_rules(const std::array<std::string_view, kColours>& colours,
                         std::string_view ground, std::string_view ink, std::string_view quiet,
                         std::string_view grid, std::string_view bad, double faint) {
  std::string rules = fmt::format(
      ".plot .z{{fill:{}}}.plot text{{fill:{}}}.plot .q{{fill:{}}}.plot .g{{stroke:{}}}"
      ".plot .x{{stroke:{};fill:none;stroke-width:1.5}}.plot .f{{stroke-opacity:{}}}",
      ground, ink, quiet, grid, bad, faint);
  for (size_t i = 0; i < colours.size(); ++i)
    rules += fmt::format(
        ".plot .c{0}{{stroke:{1}}}.plot .a{0}{{fill:{1}}}.plot .o{0}{{stroke:{1};"
        "fill:{2};stroke-width:1.6}}",
        i, colours[i], ground);
  return rules;
}

}  // namespace

std::string colour_class(size_t colour) {
  return fmt::format("c{}{}", colour % kColours, colour >= kColours ? " d" : "");
}

std::string chart_style() {
  return fmt::format(
      "{}{}@media (prefers-color-scheme:dark){{{}}}", kShapes,
      colour_rules(kLight, "#fff", "#1c2128", "#5b6370", "#e4e7eb", "#c01c28", 0.32),
      colour_rules(kDark, "#181c22", "#e6e9ee", "#9aa4b2", "#2b323b", "#ff7b72", 0.45));
}

}  // namespace dstrain::report
