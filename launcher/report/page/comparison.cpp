#include "launcher/report/page/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "launcher/report/chart/markup.h"
#include "launcher/report/record/run_summary.h"
#include "runtime/config/text.h"

namespace dstrain::report {
namespace {

constexpr size_t kLongestCell = 32, kLongestKey = 56;

// A line of a table: a name, and a cell of each run.
struct Row {
  std::string name;
  std::vector<std::string> cells;
};

// Returns a text for a terminal: on one line, of valid UTF-8.
std::string cell_of(const std::string& text) {
  return shortened(printable(text), kLongestCell);
}

std::string padding(const std::string& text, size_t width) {
  return std::string(width - std::min(width, characters_in(text)), ' ');
}

void append_rows(std::string& text, const std::vector<Row>& rows, size_t name_width,
                 const std::vector<size_t>& widths) {
  for (const Row& row : rows) {
    std::string line = row.name + padding(row.name, name_width);
    for (size_t i = 0; i < row.cells.size(); ++i)
      line += "  " + padding(row.cells[i], widths[i]) + row.cells[i];
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
}

std::vector<Row> number_rows(const std::vector<RunRecord>& runs) {
  std::vector<Row> rows = {{"", {}}, {"state", {}}, {"steps", {}}};
  std::vector<RunSummary> all;
  for (const RunRecord& run : runs) {
    all.push_back(summary_of(run));
    rows[0].cells.push_back(cell_of(run.name));
    rows[1].cells.push_back(run.state());
    rows[2].cells.push_back(fmt::format("{}", run.metrics.last_step));
  }
  for (const SummaryLine& line : summary_lines()) {
    const auto has = [&line](const RunSummary& s) { return !std::isnan(s.*line.value); };
    if (std::ranges::none_of(all, has)) continue;
    Row row{(line.form == SummaryLine::Form::step ? "  " : "") + line.label, {}};
    for (const RunSummary& summary : all)
      row.cells.push_back(summary_text(summary.*line.value, line.form));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Row> difference_rows(const std::vector<RunRecord>& runs) {
  std::vector<const RunConfig*> configs;
  for (const RunRecord& run : runs) configs.push_back(&run.config);
  std::vector<Row> rows;
  for (const ConfigDifference& difference : config_differences(configs)) {
    Row row{shortened(printable(difference.key), kLongestKey), {}};
    for (const auto& value : difference.values) row.cells.push_back(value ? cell_of(*value) : "–");
    rows.push_back(std::move(row));
  }
  return rows;
}

nlohmann::ordered_json number_json(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (std::abs(value) < 0x1p53 && value == std::trunc(value)) return static_cast<int64_t>(value);
  return value;
}

// Returns a text as JSON can hold it.
std::string json_name(const std::string& text) {
  return first_invalid_utf8(text) == std::string::npos ? text : printable(text);
}

}  // namespace

std::string comparison_text(const std::vector<RunRecord>& runs) {
  const std::vector<Row> numbers = number_rows(runs), differences = difference_rows(runs);
  size_t name_width = 0;
  std::vector<size_t> widths(runs.size());
  for (const std::vector<Row>* rows : {&numbers, &differences})
    for (const Row& row : *rows) {
      name_width = std::max(name_width, characters_in(row.name));
      for (size_t i = 0; i < row.cells.size(); ++i)
        widths[i] = std::max(widths[i], characters_in(row.cells[i]));
    }
  std::string text;
  append_rows(text, numbers, name_width, widths);
  text += differences.empty() ? "\nThe runs have the same settings.\n" : "\ndiffering settings\n";
  append_rows(text, differences, name_width, widths);
  const bool mfu = std::ranges::any_of(
      runs, [](const RunRecord& run) { return run.metrics.find("mfu") != nullptr; });
  if (!mfu) text += "\nMFU is not recorded: a run shows it in its live line on a terminal alone.\n";
  return text;
}

std::string comparison_json(const std::vector<RunRecord>& runs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::vector<const RunConfig*> configs;
  for (const RunRecord& run : runs) {
    configs.push_back(&run.config);
    const RunSummary summary = summary_of(run);
    nlohmann::ordered_json object = {{"run", json_name(run.directory)},
                                     {"state", run.state()},
                                     {"steps", run.metrics.last_step}};
    for (const SummaryLine& line : summary_lines())
      object[line.key] = number_json(summary.*line.value);
    list.push_back(std::move(object));
  }
  nlohmann::ordered_json differences = nlohmann::ordered_json::object();
  for (const ConfigDifference& difference : config_differences(configs)) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (const auto& value : difference.values)
      values.push_back(value ? nlohmann::ordered_json::parse(*value, nullptr, false)
                             : nlohmann::ordered_json(nullptr));
    differences[difference.key] = std::move(values);
  }
  return nlohmann::ordered_json{{"runs", std::move(list)}, {"differences", std::move(differences)}}
             .dump(1) +
         "\n";
}

}  // namespace dstrain::report
