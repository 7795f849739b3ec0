#include "launcher/report/page/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "launcher/report/page/trace_plots.h"
#include "launcher/report/record/run_summary.h"
#include "runtime/config/text.h"

namespace dstrain::report {
namespace {

constexpr double kFileWidth = 720, kFileHeight = 420;
constexpr size_t kMostNamedRings = 4;  // runs whose validations have a place in the legend

// Names that have a picture of their own kind, or none.
constexpr std::array<std::string_view, 13> kKnown = {
    "loss",       "val_loss",   "lr",        "grad_norm",         "loss_scale",
    "skipped",    "tokens",     "step_ms",   "tokens_per_second", "samples_per_second",
    "peak_bytes", "host_bytes", "disk_bytes"};

// Makes charts of a metric of all runs.
class Curves {
 public:
  explicit Curves(const std::vector<RunRecord>& runs) : runs_(runs) {}

  bool has(std::string_view name) const {
    return std::ranges::any_of(
        runs_, [name](const RunRecord& run) { return run.metrics.find(name) != nullptr; });
  }

  // Adds the values of each run as they are.
  void add_plain(LineChart& chart, std::string_view name, LineLook look = LineLook::plain) const {
    for (size_t i = 0; i < runs_.size(); ++i)
      if (const Metric* const metric = runs_[i].metrics.find(name))
        chart.lines.push_back({metric->values.points, i, look, label(i), pointed(i, chart.title)});
  }

  // Adds the values faintly, and their means over them.
  void add_smoothed(LineChart& chart, std::string_view name) const {
    for (size_t i = 0; i < runs_.size(); ++i) {
      const Metric* const metric = runs_[i].metrics.find(name);
      if (metric == nullptr) continue;
      chart.lines.push_back(
          {metric->values.points, i, LineLook::faint, "", pointed(i, chart.title)});
      chart.lines.push_back({metric->smooth, i, LineLook::plain,
                             runs_.size() > 1 ? label(i) : "smoothed (pale: every step)"});
    }
  }

  // Adds validations as rings: of one run in a second colour, of several in those of the runs.
  void add_validations(LineChart& chart, std::string_view name) const {
    for (size_t i = 0; i < runs_.size(); ++i) {
      const Metric* const metric = runs_[i].metrics.find(name);
      if (metric == nullptr) continue;
      std::string text = "validation";
      if (runs_.size() > 1)
        text = runs_.size() > kMostNamedRings ? "" : runs_[i].name + ", validation";
      chart.lines.push_back({metric->values.points, runs_.size() > 1 ? i : 1, LineLook::marked,
                             text,
                             runs_.size() > 1 ? runs_[i].name + ", validation" : "validation"});
    }
  }

  void add_crosses(LineChart& chart) const {
    for (const RunRecord& run : runs_)
      for (const int64_t step : run.metrics.steps_without_loss)
        chart.crosses.push_back(static_cast<double>(step));
    chart.cross_label = "no finite loss";
  }

  // Returns the names that any run has, in the order of their appearance.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const RunRecord& run : runs_)
      for (const Metric& metric : run.metrics.metrics)
        if (std::ranges::find(all, metric.name) == all.end()) all.push_back(metric.name);
    return all;
  }

  const std::vector<RunRecord>& runs() const { return runs_; }

 private:
  // What the values of a run are called where the reader points.
  std::string pointed(size_t run, const std::string& title) const {
    return runs_.size() > 1 ? runs_[run].name : lower_case(title);
  }
  std::string label(size_t run) const { return runs_.size() > 1 ? runs_[run].name : ""; }

  const std::vector<RunRecord>& runs_;
};

// Returns the seconds that a run had trained after a step.
double seconds_at(const Series& elapsed, double step) {
  const auto next = std::ranges::lower_bound(elapsed.points, step, {}, &Point::x);
  if (next == elapsed.points.end()) return elapsed.last;
  if (next == elapsed.points.begin() || next->x == step) return next->y;
  const Point& before = *(next - 1);
  return before.y + (next->y - before.y) * (step - before.x) / (next->x - before.x);
}

LineChart loss_by_time(const Curves& curves) {
  LineChart chart{.title = "Loss by training time",
                  .y_label = "smoothed",
                  .x_label = "time of all steps so far",
                  .x_unit = Unit::seconds};
  for (size_t i = 0; i < curves.runs().size(); ++i) {
    const RunMetrics& metrics = curves.runs()[i].metrics;
    const Metric* const loss = metrics.find("loss");
    if (loss == nullptr || metrics.elapsed.empty()) continue;
    Line line{loss->smooth, i, LineLook::plain,
              curves.runs().size() > 1 ? curves.runs()[i].name : "",
              curves.runs().size() > 1 ? curves.runs()[i].name + ", smoothed" : "smoothed loss"};
    for (Point& point : line.points) point.x = seconds_at(metrics.elapsed, point.x);
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

void add_losses(const Curves& curves, PlotSection& section) {
  if (!curves.has("loss") && !curves.has("val_loss")) return;
  LineChart loss{.title = "Loss", .y_label = "mean over targets", .x_label = "step"};
  curves.add_smoothed(loss, "loss");
  curves.add_validations(loss, "val_loss");
  curves.add_crosses(loss);
  section.plots.push_back({"loss", std::move(loss), true, true});
  if (curves.has("val_loss")) {
    LineChart validation{
        .title = "Validation loss", .y_label = "mean over targets", .x_label = "step"};
    curves.add_plain(validation, "val_loss", LineLook::marked);
    section.plots.push_back({"validation_loss", std::move(validation), false, true});
  }
  if (LineChart by_time = loss_by_time(curves); by_time.has_points())
    section.plots.push_back({"loss_by_time", std::move(by_time), false, true});
}

void add_optimizer(const Curves& curves, PlotSection& section) {
  if (curves.has("lr")) {
    LineChart chart{.title = "Learning rate", .y_label = "", .x_label = "step", .from_zero = true};
    curves.add_plain(chart, "lr");
    section.plots.push_back({"learning_rate", std::move(chart), false, true});
  }
  if (curves.has("grad_norm")) {
    LineChart chart{.title = "Gradient norm", .y_label = "L2, before clipping", .x_label = "step"};
    curves.add_smoothed(chart, "grad_norm");
    section.plots.push_back({"gradient_norm", std::move(chart), false, true});
  }
  const bool has_scale = std::ranges::any_of(curves.runs(), [](const RunRecord& run) {
    const Metric* const scale = run.metrics.find("loss_scale");
    return scale != nullptr && (scale->values.least.y != 1 || scale->values.most.y != 1);
  });
  if (has_scale) {
    LineChart chart{.title = "Loss scale", .y_label = "", .x_label = "step", .logarithmic = true};
    curves.add_plain(chart, "loss_scale");
    section.plots.push_back({"loss_scale", std::move(chart)});
  }
}

// Returns a name for a file: letters, digits, '-' and '_'.
std::string file_name_of(const std::string& name) {
  std::string file = "metric_";
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_';
    file += plain ? c : '_';
  }
  return file;
}

// Metrics that the model or the objective has beside the loss, each with its validations.
PlotSection metrics_section(const Curves& curves) {
  PlotSection section{"metrics", "Metrics", {}};
  const std::vector<std::string> names = curves.names();
  std::set<std::string> done, files;
  for (const std::string& name : names) {
    if (std::ranges::find(kKnown, name) != kKnown.end() || name == "comm_bytes" ||
        name.starts_with("codec_error/"))
      continue;
    const bool validates = name.starts_with("val_");
    const std::string trained = validates ? name.substr(4) : name;
    if (!done.insert(trained).second) continue;
    LineChart chart{.title = trained, .y_label = "", .x_label = "step"};
    if (curves.has(trained)) curves.add_smoothed(chart, trained);
    curves.add_validations(chart, "val_" + trained);
    std::string file = file_name_of(trained);
    for (int number = 2; !files.insert(file).second; ++number)
      file = fmt::format("{}_{}", file_name_of(trained), number);
    section.plots.push_back({file, std::move(chart)});
  }
  return section;
}

void add_speed(const Curves& curves, PlotSection& section) {
  const auto add = [&](const char* name, const char* id, const char* title, const char* unit) {
    if (!curves.has(name)) return;
    LineChart chart{.title = title, .y_label = unit, .x_label = "step", .from_zero = true};
    curves.add_smoothed(chart, name);
    section.plots.push_back({id, std::move(chart)});
  };
  add("tokens_per_second", "tokens_per_second", "Throughput", "tokens/s");
  // Where there are tokens, samples have the same course.
  if (!curves.has(kTokensPerSecond))
    add("samples_per_second", "samples_per_second", "Throughput", "samples/s");
  add("step_ms", "step_time", "Step time", "ms");
}

void add_memory(const std::vector<RunRecord>& runs, PlotSection& section) {
  BarChart chart{.title = "Memory by the plan", .x_label = "of the rank that needs most"};
  chart.unit = Unit::bytes;
  chart.parts = {"device"};
  std::vector<RunSummary> all;
  for (const RunRecord& run : runs) all.push_back(summary_of(run));
  const bool host = std::ranges::any_of(all, [](const RunSummary& s) { return s.host_peak > 0; });
  const bool disk = std::ranges::any_of(all, [](const RunSummary& s) { return s.disk_peak > 0; });
  if (host) chart.parts.emplace_back("host");
  if (disk) chart.parts.emplace_back("disk");
  const auto part = [](double bytes, size_t colour) {
    return BarPart{std::isfinite(bytes) ? bytes : 0, colour};
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!std::isfinite(all[i].memory_peak)) continue;
    Bar bar{runs[i].name, {part(all[i].memory_peak, 0)}, ""};
    if (host) bar.parts.push_back(part(all[i].host_peak, 1));
    if (disk) bar.parts.push_back(part(all[i].disk_peak, host ? 2 : 1));
    for (const double bytes : {all[i].memory_peak, all[i].host_peak, all[i].disk_peak})
      if (bytes > 0)
        bar.text += (bar.text.empty() ? "" : " + ") + summary_text(bytes, SummaryLine::Form::bytes);
    chart.bars.push_back(std::move(bar));
  }
  if (chart.parts.size() == 1) chart.parts.clear();
  if (chart.bars.empty()) return;
  section.plots.push_back({"memory", std::move(chart)});
  section.lines.emplace_back(
      "A rank reserves what its plan says before step 1, and nothing after it. What its process "
      "holds beside that is not recorded.");
}

void add_communication(const Curves& curves, PlotSection& section) {
  BarChart sent{.title = "Sent in a step", .x_label = "by rank 0, mean"};
  sent.unit = Unit::bytes;
  for (const RunRecord& run : curves.runs()) {
    const double bytes = summary_of(run).comm_mean;
    if (bytes > 0)
      sent.bars.push_back({run.name, {{bytes, 0}}, summary_text(bytes, SummaryLine::Form::bytes)});
  }
  if (!sent.bars.empty()) section.plots.push_back({"sent_bytes", std::move(sent)});
  for (const std::string& name : curves.names()) {
    if (!name.starts_with("codec_error/")) continue;
    const std::string of = name.substr(name.find('/') + 1);
    LineChart chart{
        .title = "Codec error: " + of, .y_label = "relative", .x_label = "step", .from_zero = true};
    curves.add_plain(chart, name);
    section.plots.push_back({file_name_of("codec_error_" + of).substr(7), std::move(chart)});
  }
}

}  // namespace

std::vector<PlotSection> plots_of(const std::vector<RunRecord>& runs) {
  const Curves curves(runs);
  PlotSection training{"training", "Training", {}};
  add_losses(curves, training);
  add_optimizer(curves, training);
  add_speed(curves, training);
  PlotSection times{"time", "Where the time of a step goes", {}};
  add_trace_plots(runs, times);
  PlotSection memory{"memory", "Memory and communication", {}};
  add_memory(runs, memory);
  add_communication(curves, memory);
  std::vector<PlotSection> sections;
  for (PlotSection& section : std::array{std::move(training), metrics_section(curves),
                                         std::move(times), std::move(memory)})
    if (!section.plots.empty()) sections.push_back(std::move(section));
  return sections;
}

Plot log_twin_of(const Plot& plot) {
  Plot twin = plot;
  twin.id += "_log";
  twin.log_twin = false;
  if (auto* const chart = std::get_if<LineChart>(&twin.chart)) chart->logarithmic = true;
  return twin;
}

std::string plot_file(const Plot& plot) {
  if (const auto* const bars = std::get_if<BarChart>(&plot.chart))
    return bar_chart_svg(*bars, kFileWidth, Place::file);
  return line_chart_svg(std::get<LineChart>(plot.chart), {kFileWidth, kFileHeight}, Place::file);
}

}  // namespace dstrain::report
