#include "launcher/report/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launcher/report/chart/chart_style.h"
#include "launcher/report/chart/markup.h"
#include "launcher/report/page/page_style.h"
#include "launcher/report/page/tables.h"
#include "launcher/report/record/run_summary.h"
#include "runtime/config/text.h"

namespace dstrain::report {
namespace {

constexpr Size kUsual{410, 280}, kWide{1460, 430}, kWideNarrow{410, 330};
constexpr size_t kMostNamed = 6;  // runs that the heading names

// The first picture of a page names all runs. Where they are many the smaller ones have curves instead.
LineChart with_small_legend(LineChart chart) {
  const auto named = [](const Line& line) { return !line.label.empty(); };
  if (static_cast<size_t>(std::ranges::count_if(chart.lines, named)) > kMostNamed)
    for (Line& line : chart.lines) line.label.clear();
  return chart;
}

std::string chart_html(const Plot& plot) {
  if (const auto* const bars = std::get_if<BarChart>(&plot.chart))
    return bar_chart_svg(*bars, kUsual.width, Place::page);
  const auto& chart = std::get<LineChart>(plot.chart);
  if (!plot.wide) return line_chart_svg(with_small_legend(chart), kUsual, Place::page);
  return fmt::format("<div class=\"full\">{}</div><div class=\"narrow\">{}</div>",
                     line_chart_svg(chart, kWide, Place::page),
                     line_chart_svg(chart, kWideNarrow, Place::page));
}

std::string figure_html(const Plot& plot) {
  const std::string begin = std::string("<figure>");
  const Plot twin = log_twin_of(plot);
  const auto* const chart = std::get_if<LineChart>(&twin.chart);
  if (!plot.log_twin || chart == nullptr || !chart->has_points())
    return begin + chart_html(plot) + "</figure>\n";
  return fmt::format(
      "{0}<input class=\"in-lin\" type=\"radio\" name=\"{1}\" id=\"{1}-lin\" checked>"
      "<input class=\"in-log\" type=\"radio\" name=\"{1}\" id=\"{1}-log\">"
      "<div class=\"lin\">{2}</div><div class=\"log\">{3}</div>"
      "<div class=\"scale\"><label class=\"for-lin\" for=\"{1}-lin\">linear</label>"
      "<label class=\"for-log\" for=\"{1}-log\">logarithmic</label></div></figure>\n",
      begin, plot.id, chart_html(plot), chart_html(twin));
}

std::string state_html(const RunRecord& run) {
  const std::string state = run.state();
  const char* const look = state == "done" ? " done" : run.is_running ? " busy" : "";
  return fmt::format("<span class=\"state{}\">{}</span>", look, state);
}

std::string heading_text(const std::vector<RunRecord>& runs) {
  if (runs.size() > kMostNamed) return counted(static_cast<int64_t>(runs.size()), "run");
  std::string text;
  for (const RunRecord& run : runs) text += (text.empty() ? "" : ", ") + run.name;
  return text;
}

std::string header_html(const std::vector<RunRecord>& runs) {
  std::string text =
      fmt::format("<header><p class=\"brand\">dstrain report</p>\n<h1>{}{}</h1>\n",
                  escaped(heading_text(runs)), runs.size() == 1 ? state_html(runs.front()) : "");
  if (runs.size() > 1) return text + overview_html(runs) + "</header>\n";
  const RunRecord& run = runs.front();
  if (const std::string about = run.description(); !about.empty())
    text += fmt::format("<p class=\"about\">{}</p>\n", escaped(about));
  if (run.is_running && run.asked_steps > 0)
    text += fmt::format("<div class=\"bar\"><i style=\"width:{:.1f}%\"></i></div>\n",
                        std::clamp(100 * static_cast<double>(run.metrics.last_step) /
                                       static_cast<double>(run.asked_steps),
                                   0.0, 100.0));
  text += cards_html(run);
  if (run.metrics.metrics.empty())
    text += "<p class=\"quiet\">metrics.jsonl has no step and no validation yet.</p>\n";
  return text + "</header>\n";
}

std::string section_html(const PlotSection& section) {
  std::string text =
      fmt::format("<section id=\"{}\"><h2>{}</h2>\n", section.id, escaped(section.heading));
  std::string usual;
  for (const Plot& plot : section.plots) (plot.wide ? text : usual) += figure_html(plot);
  text += "<div class=\"plots\">\n" + usual + "</div>\n";
  for (const std::string& line : section.lines)
    text += fmt::format("<p class=\"lines\">{}</p>\n", escaped(line));
  return text + "</section>\n";
}

// Sentences about what the metrics of a run lack or have twice.
std::vector<std::string> remarks_of(const RunRecord& run) {
  const RunMetrics& m = run.metrics;
  std::vector<std::string> remarks = run.notes;
  if (m.skipped > 0)
    remarks.push_back(fmt::format("{} had no update (skipped).", counted(m.skipped, "step")));
  if (m.without_loss > 0)
    remarks.push_back(fmt::format("{} had no finite loss.", counted(m.without_loss, "step")));
  if (m.restarts > 0)
    remarks.push_back(fmt::format(
        "metrics.jsonl goes back {}: {} of steps that were done again {} left out.",
        counted(m.restarts, "time"), counted(m.repeated, "line"), m.repeated == 1 ? "is" : "are"));
  if (m.unreadable > 0)
    remarks.push_back(fmt::format("{} of metrics.jsonl cannot be read and {} left out.",
                                  counted(m.unreadable, "line"), m.unreadable == 1 ? "is" : "are"));
  if (m.torn) remarks.emplace_back("The last line of metrics.jsonl is incomplete and is left out.");
  return remarks;
}

// What runs of dstrain could have recorded and none of these has.
std::vector<std::string> not_recorded(const std::vector<RunRecord>& runs) {
  const auto any = [&runs](const auto& has) { return std::ranges::any_of(runs, has); };
  const auto any_metric = [&any](std::string_view name) {
    return any([name](const RunRecord& run) { return run.metrics.find(name) != nullptr; });
  };
  std::vector<std::string> lines;
  if (!any_metric("val_loss")) lines.emplace_back("Validation: there is none yet.");
  if (!any_metric("mfu"))
    lines.emplace_back(
        "MFU: a run shows it in its live line on a terminal and writes it to no file.");
  if (!any([](const RunRecord& run) { return run.trace.has_value(); }))
    lines.emplace_back(
        "Time by instruction class and queue, waits by rank: dstrain.trace records them, and a "
        "SIGUSR2 during a run.");
  const bool codec = any([](const RunRecord& run) {
    return std::ranges::any_of(run.metrics.metrics, [](const Metric& metric) {
      return metric.name.starts_with("codec_error/");
    });
  });
  if (!codec)
    lines.emplace_back("Codec errors: runs with quantized or compressed communication have them.");
  lines.emplace_back(
      "Memory that processes really hold: memory_breakdown prints it, and no file has it.");
  return lines;
}

std::string notes_html(const std::vector<RunRecord>& runs) {
  std::string items;
  for (const RunRecord& run : runs)
    for (const std::string& remark : remarks_of(run))
      items += fmt::format("<li>{}{}</li>\n", runs.size() > 1 ? escaped(run.name + ": ") : "",
                           escaped(remark));
  std::string text;
  if (!items.empty()) text += "<h2>Remarks</h2>\n<ul>\n" + items + "</ul>\n";
  text += "<h2>Not recorded</h2>\n<ul class=\"quiet\">\n";
  for (const std::string& line : not_recorded(runs)) text += "<li>" + escaped(line) + "</li>\n";
  return text + "</ul>\n";
}

std::string footer_html(const std::vector<RunRecord>& runs, PageUse use,
                        const std::string& remark) {
  std::string text = "<footer>\n";
  for (const RunRecord& run : runs)
    text += fmt::format("<p>{}: metrics.jsonl {}</p>\n", escaped(run.directory),
                        run.written.empty() ? "is not there" : "as of " + run.written);
  if (!remark.empty()) text += "<p>" + escaped(remark) + "</p>\n";
  if (use == PageUse::served) text += "<p id=\"served\">This page refreshes itself.</p>\n";
  return text + "</footer>\n";
}

}  // namespace

std::string refresh_script() {
  return kRefreshScript;
}

std::string content_policy(PageUse use) {
  const std::string none =
      "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action "
      "'none'";
  return use == PageUse::file ? none : none + "; script-src 'self'; connect-src 'self'";
}

std::string page_html(const std::vector<RunRecord>& runs, const std::vector<PlotSection>& sections,
                      PageUse use, const std::string& remark) {
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{} – dstrain report</title>\n<style>{}{}</style>\n{}</head>\n<body>\n<main>\n",
      content_policy(use), escaped(heading_text(runs)), kPageStyle, chart_style(),
      use == PageUse::served
          ? fmt::format(
                "<script src=\"{}\" defer></script>\n<noscript><meta http-equiv=\"refresh\" "
                "content=\"5\"></noscript>\n",
                kRefreshPath)
          : "");
  text += header_html(runs);
  for (const PlotSection& section : sections) text += section_html(section);
  if (const std::string numbers = numbers_html(runs); !numbers.empty())
    text += "<section id=\"numbers\"><h2>Numbers</h2>\n" + numbers + "</section>\n";
  text += "<section id=\"configuration\"><h2>Configuration</h2>\n" + configuration_html(runs) +
          "</section>\n";
  text += notes_html(runs) + footer_html(runs, use, remark);
  return text + "</main>\n</body>\n</html>\n";
}

}  // namespace dstrain::report
