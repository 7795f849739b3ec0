#include "launcher/report/page/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "launcher/report/chart/chart_style.h"
#include "launcher/report/chart/markup.h"
#include "launcher/report/chart/ticks.h"
#include "launcher/report/record/run_summary.h"
#include "runtime/config/text.h"

namespace dstrain::report {
namespace {

using Form = SummaryLine::Form;

constexpr size_t kLongestRunName = 24;  // of a run in the head of a table

// `exact`: the number that `value` rounds; NaN where it is one in full.
std::string card(const std::string& label, const std::string& value, const std::string& below,
                 double exact = RunSummary::kNone) {
  const std::string title =
      std::isnan(exact) ? "" : fmt::format(" title=\"{}\"", exact_text(exact));
  return fmt::format("<div class=\"card\"><span>{}</span><b{}>{}</b><span>{}</span></div>\n",
                     escaped(label), title, escaped(value), escaped(below));
}

std::string sentence_case(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

// Returns "best 1.4521 at step 289"; empty without a value.
std::string best_text(double value, double step) {
  if (std::isnan(value)) return "";
  return fmt::format("best {:.4f} at step {:.0f}", value, step);
}

// Returns a number that shows what fits, and has the exact value for whoever asks.
std::string number_cell(double value, Form form) {
  if (std::isnan(value)) return "<td class=\"n\">–</td>";
  return fmt::format("<td class=\"n\"><data value=\"{0}\" title=\"{0}\">{1}</data></td>",
                     exact_text(value), escaped(summary_text(value, form)));
}

std::string settings_table(const RunConfig& config, bool given) {
  std::string rows;
  for (const ConfigEntry& entry : config)
    if (entry.is_given() == given)
      rows += fmt::format(
          "<tr><td class=\"k\">{}</td><td class=\"k\">{}</td><td class=\"o\">{}</td></tr>\n",
          escaped(entry.key), escaped(entry.value), escaped(entry.origin));
  if (rows.empty()) return "";
  return "<div class=\"box\"><table><tr><th>Key</th><th>Value</th><th>Origin</th></tr>\n" + rows +
         "</table></div>\n";
}

std::string settings_of(const RunRecord& run, size_t number, bool open) {
  if (run.config.empty())
    return "<p class=\"quiet\">The run has no resolved_config.json that can be read.</p>\n";
  int64_t given = 0;
  for (const ConfigEntry& entry : run.config) given += entry.is_given() ? 1 : 0;
  const auto others = static_cast<int64_t>(run.config.size()) - given;
  std::string text;
  if (given > 0)
    text += fmt::format("<details id=\"given-{}\"{}><summary>{} given</summary>{}</details>\n",
                        number, open ? " open" : "", counted(given, "setting"),
                        settings_table(run.config, true));
  if (others > 0)
    text += fmt::format(
        "<details id=\"others-{}\"><summary>{} by default, or following from "
        "others</summary>{}</details>\n",
        number, counted(others, "setting"), settings_table(run.config, false));
  return text;
}

std::string differences_table(const std::vector<RunRecord>& runs) {
  std::vector<const RunConfig*> configs;
  for (const RunRecord& run : runs) configs.push_back(&run.config);
  const std::vector<ConfigDifference> differences = config_differences(configs);
  if (differences.empty()) return "<p class=\"quiet\">The runs have the same settings.</p>\n";
  std::string text = "<div class=\"box\"><table><tr><th>Differing key</th>";
  for (size_t i = 0; i < runs.size(); ++i)
    text += fmt::format("<th title=\"{}\">{}{}</th>", escaped(runs[i].name), swatch_html(i),
                        escaped(shortened(runs[i].name, kLongestRunName)));
  text += "</tr>\n";
  for (const ConfigDifference& difference : differences) {
    text += fmt::format("<tr><td class=\"k\">{}</td>", escaped(difference.key));
    for (const auto& value : difference.values)
      text += fmt::format("<td class=\"k\">{}</td>", value ? escaped(*value) : "–");
    text += "</tr>\n";
  }
  return text + "</table></div>\n";
}

}  // namespace

std::string swatch_html(size_t run) {
  return fmt::format(
      "<svg class=\"plot swatch\" viewBox=\"0 0 11 11\"><rect class=\"b a{}\" width=\"11\" "
      "height=\"11\"/></svg>",
      run % kColours);
}

std::string cards_html(const RunRecord& run) {
  const RunSummary s = summary_of(run);
  const RunMetrics& metrics = run.metrics;
  if (metrics.steps == 0 && std::isnan(s.final_validation)) return "";
  std::string text = "<div class=\"cards\">\n";
  const auto add = [&text](const char* label, double value, Form form, const std::string& below) {
    if (!std::isnan(value)) text += card(label, summary_text(value, form), below, value);
  };
  if (metrics.steps > 0) {
    const std::string best = best_text(s.best_loss, s.best_loss_step);
    if (std::isnan(s.final_loss))
      text += card("Loss", "not finite", best);
    else
      add("Loss", s.final_loss, Form::loss, best);
    text += card("Steps", fmt::format("{}", metrics.last_step),
                 run.asked_steps > 0 ? fmt::format("of {}", run.asked_steps) : "");
  }
  add("Validation loss", s.final_validation, Form::loss,
      best_text(s.best_validation, s.best_validation_step));
  add("Tokens/s", s.tokens_per_second, Form::rate,
      fmt::format("median; {} in all", short_text(metrics.tokens)));
  add("Step time", s.step_ms, Form::milliseconds,
      fmt::format("median; {} in all", summary_text(s.seconds, Form::duration)));
  add("MFU", s.mfu, Form::percent, "mean");
  add("Memory of a rank", s.memory_peak, Form::bytes, "by the plan");
  return text + "</div>\n";
}

std::string overview_html(const std::vector<RunRecord>& runs) {
  std::vector<RunSummary> all;
  std::string head = "<tr><th></th>", states = "<tr><th>State</th>", steps = "<tr><th>Steps</th>";
  for (size_t i = 0; i < runs.size(); ++i) {
    all.push_back(summary_of(runs[i]));
    head += fmt::format("<th class=\"n name\" title=\"{}\">{}{}</th>", escaped(runs[i].name),
                        swatch_html(i), escaped(shortened(runs[i].name, kLongestRunName)));
    states += fmt::format("<td class=\"n\">{}</td>", runs[i].state());
    steps += fmt::format("<td class=\"n\">{}</td>", runs[i].metrics.last_step);
  }
  std::string rows = head + "</tr>\n" + states + "</tr>\n" + steps + "</tr>\n";
  for (const SummaryLine& line : summary_lines()) {
    const auto has = [&line](const RunSummary& s) { return !std::isnan(s.*line.value); };
    if (std::ranges::none_of(all, has) || line.key == "peak_bytes_mean") continue;
    rows += fmt::format("<tr><th{}>{}</th>", line.form == Form::step ? " class=\"below\"" : "",
                        escaped(sentence_case(line.label)));
    for (const RunSummary& summary : all) rows += number_cell(summary.*line.value, line.form);
    rows += "</tr>\n";
  }
  return "<div class=\"box overview\"><table>" + rows + "</table></div>\n";
}

std::string numbers_html(const std::vector<RunRecord>& runs) {
  std::string text;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& run = runs[i];
    if (run.metrics.metrics.empty()) continue;
    text += fmt::format(
        "<details id=\"numbers-{}\"{}><summary>{}{}</summary><div "
        "class=\"box\"><table><tr><th>Metric</th>"
        "<th class=\"n\">Last</th><th class=\"n\">Least</th><th class=\"n\">at step</th>"
        "<th class=\"n\">Largest</th><th class=\"n\">at step</th></tr>\n",
        i, runs.size() == 1 ? " open" : "", runs.size() > 1 ? swatch_html(i) : "",
        runs.size() > 1 ? escaped(run.name) : "As metrics.jsonl has them");
    for (const Metric& metric : run.metrics.metrics) {
      if (metric.name == "skipped" || metric.name == kTokensPerSecond) continue;
      const Series& values = metric.values;
      fmt::format_to(
          std::back_inserter(text),
          "<tr><td class=\"k\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
          "<td class=\"n\">{:.0f}</td><td class=\"n\">{}</td><td class=\"n\">{:.0f}</td></tr>\n",
          escaped(metric.name), exact_text(values.last), exact_text(values.least.y), values.least.x,
          exact_text(values.most.y), values.most.x);
    }
    text += "</table></div></details>\n";
  }
  return text;
}

std::string configuration_html(const std::vector<RunRecord>& runs) {
  std::string text;
  if (runs.size() > 1) text += differences_table(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs.size() > 1)
      text += fmt::format("<h3>{}{}</h3>\n", swatch_html(i), escaped(runs[i].name));
    text += settings_of(runs[i], i, runs.size() == 1);
  }
  return text;
}

}  // namespace dstrain::report
