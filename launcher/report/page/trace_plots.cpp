#include "launcher/report/page/trace_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/report/chart/ticks.h"
#include "runtime/config/text.h"

namespace dstrain::report {
namespace {

constexpr size_t kMostClasses = 14;  // that have a bar of their own
constexpr size_t kMostBars = 24;     // of ranks; more of them are points of lines

// The queues in the order of their colours.
constexpr std::array<std::string_view, 5> kQueues = {"compute", "comm", "copy", "host", "io"};

std::string ms_text(double ms) {
  return short_text(ms) + " ms";
}

BarChart class_chart(const TraceTimes& trace) {
  std::vector<std::pair<std::pair<std::string, std::string>, double>> classes(trace.classes.begin(),
                                                                              trace.classes.end());
  std::ranges::stable_sort(classes, std::greater<>(),
                           [](const auto& entry) { return entry.second; });
  std::vector<std::string> queues;
  for (const std::string_view queue : kQueues)
    if (std::ranges::any_of(classes, [&](const auto& c) { return c.first.first == queue; }))
      queues.emplace_back(queue);
  BarChart chart{.title = "Time by instruction class", .x_label = "ms of a step, mean of ranks"};
  const auto colour_of = [&queues](const std::string& queue) {
    return static_cast<size_t>(std::ranges::find(queues, queue) - queues.begin());
  };
  Bar others;
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto& [place, ms] = classes[i];
    const BarPart part{ms, colour_of(place.first)};
    if (i < kMostClasses || classes.size() == kMostClasses + 1) {
      chart.bars.push_back({place.second, {part}, ms_text(ms)});
      continue;
    }
    const auto same = std::ranges::find(others.parts, part.colour, &BarPart::colour);
    if (same == others.parts.end())
      others.parts.push_back(part);
    else
      same->value += ms;
  }
  if (!others.parts.empty()) {
    double sum = 0;
    for (const BarPart& part : others.parts) sum += part.value;
    others.label =
        counted(static_cast<int64_t>(classes.size() - kMostClasses), "other class", "es");
    others.text = ms_text(sum);
    chart.bars.push_back(std::move(others));
  }
  chart.parts = std::move(queues);
  return chart;
}

// A time of each rank: its name, and where it is.
struct RankPart {
  std::string name;
  double RankTime::*value;
};

std::variant<LineChart, BarChart> rank_chart(const TraceTimes& trace, const std::string& title,
                                             const std::vector<RankPart>& parts) {
  if (trace.ranks.size() <= kMostBars) {
    BarChart chart{.title = title, .x_label = "ms of a step"};
    if (parts.size() > 1)
      for (const RankPart& part : parts) chart.parts.push_back(part.name);
    for (const auto& [rank, time] : trace.ranks) {
      Bar bar{fmt::format("rank {}", rank), {}, ""};
      double sum = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        const double value = std::max(time.*parts[i].value, 0.0);
        bar.parts.push_back({value, i});
        sum += value;
      }
      bar.text = ms_text(sum);
      chart.bars.push_back(std::move(bar));
    }
    return chart;
  }
  LineChart chart{.title = title, .y_label = "ms of a step", .x_label = "rank", .from_zero = true};
  for (size_t i = 0; i < parts.size(); ++i) {
    Line line{{}, i, LineLook::plain, parts.size() > 1 ? parts[i].name : ""};
    for (const auto& [rank, time] : trace.ranks)
      line.points.push_back({static_cast<double>(rank), time.*parts[i].value});
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

// Adds what tells the run of a picture from the others.
void name_run(std::variant<LineChart, BarChart>& chart, const std::string& run) {
  std::visit([&run](auto& c) { c.title += ": " + run; }, chart);
}

}  // namespace

void add_trace_plots(const std::vector<RunRecord>& runs, PlotSection& section) {
  std::vector<Plot> by_class, by_rank, waits;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].trace) continue;
    const TraceTimes& trace = *runs[i].trace;
    const auto add = [&](std::vector<Plot>& plots, Plot plot) {
      if (runs.size() > 1) {
        name_run(plot.chart, runs[i].name);
        plot.id += fmt::format("_{}", i + 1);
      }
      plots.push_back(std::move(plot));
    };
    add(by_class, {"time_by_class", class_chart(trace)});
    add(by_rank, {"time_by_rank", rank_chart(trace, "Time by rank",
                                             {{"computing", &RankTime::compute},
                                              {"exposed communication", &RankTime::exposed_comm},
                                              {"other", &RankTime::other}})});
    if (trace.ranks.size() > 1)
      add(waits, {"waits_by_rank",
                  rank_chart(trace, "Waiting for other ranks", {{"waiting", &RankTime::waiting}})});
    section.lines.push_back(
        fmt::format("{}Times by class, rank and wait are means over {} of the trace {}{}.",
                    runs.size() > 1 ? runs[i].name + ": " : "", counted(trace.steps, "step"),
                    std::filesystem::path(trace.file).filename().string(),
                    trace.steps > 1 ? ", whose first step is left out" : ""));
  }
  for (std::vector<Plot>* plots : {&by_class, &by_rank, &waits})
    std::ranges::move(*plots, std::back_inserter(section.plots));
}

}  // namespace dstrain::report
