#include "runtime/plan/pipeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// The letter of a task's phase, in lower case for chunks after the first.
char letter_of(const StageTask& task) {
  const std::string_view letters = task.chunk == 0 ? "FBW" : "fbw";
  return letters[static_cast<size_t>(task.phase)];
}

std::string label_of(const StageTask& task) {
  return fmt::format("{}{}", letter_of(task), task.micro);
}

// Returns the characters for each unit of time: as many as show every label, within `most` for the step. The
// shortest task has a whole number of them where possible, so that tasks of one length look alike.
double scale_of(const PipelineOrders& orders, const PipelineTimes& times, size_t most) {
  double shortest = times.length, wanted = 0;
  for (size_t stage = 0; stage < orders.stages(); ++stage)
    for (size_t i = 0; i < orders.tasks[stage].size(); ++i) {
      const double time = times.tasks[stage][i].end - times.tasks[stage][i].begin;
      if (time <= 0) continue;
      shortest = std::min(shortest, time);
      wanted =
          std::max(wanted, static_cast<double>(label_of(orders.tasks[stage][i]).size()) / time);
    }
  if (times.length <= 0) return 0;
  const double possible = std::min(wanted, static_cast<double>(most) / times.length);
  const double whole = std::floor(possible * shortest);
  return whole >= 1 ? whole / shortest : possible;
}

std::string row_of(const std::vector<StageTask>& order, const std::vector<TaskTime>& times,
                   double scale, size_t columns) {
  std::string row(columns, '.');
  const auto column = [&](double time) {
    return std::min(columns, static_cast<size_t>(std::lround(time * scale)));
  };
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t begin = column(times[i].begin), size = column(times[i].end) - begin;
    if (size == 0) continue;
    std::string text = label_of(order[i]);
    if (text.size() > size) text = letter_of(order[i]);
    row.replace(begin, size, text + std::string(size - text.size(), '-'));
  }
  return row;
}

std::string in_flight_text(const PipelineOrders& orders, size_t stage) {
  const int chunks = static_cast<int>(orders.parts[stage].size());
  return fmt::format("{}", fmt::join(in_flight(orders.tasks[stage], chunks), "+"));
}

// Returns whether a task of the orders is what `wanted` asks for.
template <class Wanted>
bool has_slot(const PipelineOrders& orders, Wanted wanted) {
  return std::ranges::any_of(orders.tasks, [&](const std::vector<StageTask>& order) {
    return std::ranges::any_of(order, wanted);
  });
}

}  // namespace

std::string timeline_heading(const PipelineOrders& orders, const PipelineTimes& times) {
  check(!times.error, "a timeline of a step that does not end: {}", times.error.value_or(""));
  std::string text = fmt::format("bubble {:.1f} %, in flight", 100 * times.bubble);
  for (size_t stage = 0; stage < orders.stages(); ++stage)
    text += ' ' + in_flight_text(orders, stage);
  return text;
}

std::string timeline_text(const std::string& title, const PipelineOrders& orders,
                          const PipelineTimes& times, size_t width) {
  std::string text = fmt::format("{}\n{}\n", title, timeline_heading(orders, times));
  const bool split =
      has_slot(orders, [](const StageTask& task) { return task.phase == Phase::weight_grad; });
  const bool chunks = has_slot(orders, [](const StageTask& task) { return task.chunk > 0; });
  text += fmt::format("F forward, B backward{}, . idle{}\n", split ? ", W weight gradients" : "",
                      chunks ? "; lower case: chunks after the first" : "");
  const size_t label = fmt::format("stage {}  ", orders.stages() - 1).size();
  check(label < width, "a timeline of {} characters has no room for a row", width);
  const double scale = scale_of(orders, times, width - label);
  const auto columns = static_cast<size_t>(std::lround(times.length * scale));
  for (size_t stage = 0; stage < orders.stages(); ++stage)
    text += fmt::format("{:<{}}{}\n", fmt::format("stage {}", stage), label,
                        row_of(orders.tasks[stage], times.tasks[stage], scale, columns));
  return text;
}

}  // namespace dstrain
