#include "launcher/report/record/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include "launcher/report/record/lines_of_file.h"
#include "launcher/report/record/metrics_line.h"
#include "runtime/core/files/input_file.h"

namespace dstrain::report {
namespace {

constexpr int64_t kNoStep = -1;

// The lines that one start of a run has written: their steps ascend.
struct Section {
  int64_t first_line = 0;
  int64_t first_step = kNoStep, last_step = kNoStep;
  int64_t kept_step = 0;  // lines of later steps were written again by a later start
};

// The first reading of a file: which lines count.
class Outline {
 public:
  void add(std::string_view text) {
    const int64_t line = lines_++;
    const std::optional<Step> step = step_of(text);
    if (!step) return;
    if (sections_.empty())
      sections_.push_back({});
    else if (step->number < newest_ || (step->trains && step->number == newest_trained_))
      sections_.push_back({.first_line = line});
    Section& section = sections_.back();
    if (section.first_step == kNoStep) {
      section.first_step = step->number;
      section.kept_step = step->trains ? step->number - 1 : step->number;  // of those before
    }
    section.last_step = newest_ = step->number;
    if (step->trains) newest_trained_ = step->number;
  }

  // Returns the sections, each with the last step that no later one has done again.
  std::vector<Section> sections() {
    int64_t kept = std::numeric_limits<int64_t>::max();
    for (auto section = sections_.rbegin(); section != sections_.rend(); ++section) {
      const int64_t before = std::min(kept, section->kept_step);
      section->kept_step = kept;
      kept = before;
    }
    return std::move(sections_);
  }

 private:
  struct Step {
    int64_t number;
    bool trains;  // a line of a step, not of a validation
  };

  std::optional<Step> step_of(std::string_view text) {
    if (const std::optional<int64_t> number = step_at_begin(text)) {
      const size_t comma = text.find(',');
      if (text.substr(comma).starts_with(R"(,"loss":)")) return Step{*number, true};
      if (text.substr(comma).starts_with(R"(,"val_loss":)")) return Step{*number, false};
    }
    if (!read_metrics_line(text, names_, line_)) return std::nullopt;
    return Step{line_.step, line_.value(loss_).has_value()};
  }

  MetricNames names_;
  const size_t loss_ = names_.index_of("loss");
  MetricsLine line_;
  std::vector<Section> sections_;
  int64_t lines_ = 0, newest_ = kNoStep, newest_trained_ = kNoStep;
};

// The steps between which all lines of the sections are.
struct StepRange {
  double first = 0, last = 0, count = 1;
};

StepRange range_of(const std::vector<Section>& sections) {
  int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
  for (const Section& section : sections) {
    if (section.first_step > section.kept_step) continue;
    first = std::min(first, section.first_step);
    last = std::max(last, std::min(section.last_step, section.kept_step));
  }
  if (first > last) return {};
  return {static_cast<double>(first), static_cast<double>(last),
          static_cast<double>(last - first) + 1};
}

// The second reading: the values of the lines that count.
class Collector {
 public:
  Collector(std::vector<Section> sections, size_t columns)
      : sections_(std::move(sections)),
        columns_(columns),
        range_(range_of(sections_)),
        elapsed_(range_.first, range_.last, columns) {}

  void add(std::string_view text) {
    const int64_t line_number = lines_++;
    while (at_ + 1 < sections_.size() && sections_[at_ + 1].first_line <= line_number) ++at_;
    if (!read_metrics_line(text, names_, line_) || sections_.empty()) {
      if (!text.empty()) ++run_.unreadable;
      return;
    }
    // What has been written since the first reading waits for the next one.
    const auto step = static_cast<double>(line_.step);
    if (line_.step > sections_[at_].kept_step) {
      ++run_.repeated;
    } else if (step >= newest_ && step <= range_.last) {
      newest_ = step;
      take_line();
    }
  }

  RunMetrics take(bool torn) {
    for (size_t i = 0; i < curves_.size(); ++i) {
      Metric metric{names_.name(i), curves_[i].values.take(), curves_[i].smooth.take()};
      if (!metric.values.empty()) run_.metrics.push_back(std::move(metric));
    }
    run_.elapsed = elapsed_.take();
    run_.restarts = sections_.empty() ? 0 : static_cast<int64_t>(sections_.size()) - 1;
    run_.torn = torn;
    run_.step_ms = median(step_ms_);
    run_.tokens_per_second = median(tokens_per_second_);
    run_.samples_per_second = median(samples_per_second_);
    return std::move(run_);
  }

 private:
  struct Curve {
    SeriesBuilder values;
    Smoother smooth;
  };

  void add_value(size_t index, double value) {
    while (index >= curves_.size())
      curves_.push_back(
          {{range_.first, range_.last, columns_}, {range_.first, range_.last, columns_}});
    Curve& curve = curves_[index];
    const auto step = static_cast<double>(line_.step);
    curve.values.add(step, value);
    if (std::isfinite(value)) curve.smooth.add(step, value);
  }

  void note_missing_loss() {
    ++run_.without_loss;
    const double gap = range_.count / static_cast<double>(columns_);
    if (run_.steps_without_loss.empty() ||
        static_cast<double>(line_.step - run_.steps_without_loss.back()) >= gap)
      run_.steps_without_loss.push_back(line_.step);
  }

  void take_step(double loss) {
    if (run_.steps++ == 0) run_.first_step = line_.step;
    run_.last_step = line_.step;
    run_.final_loss = loss;
    if (!std::isfinite(loss)) note_missing_loss();
    const auto value = [this](size_t name) {
      return line_.value(name).value_or(RunMetrics::kNone);
    };
    if (value(skipped_) == 1) ++run_.skipped;
    const double ms = value(ms_), tokens = value(tokens_), samples = value(samples_);
    if (std::isfinite(ms) && ms >= 0) {
      run_.seconds += ms / 1e3;
      step_ms_.push_back(ms);
      elapsed_.add(static_cast<double>(line_.step), run_.seconds);
    }
    if (std::isfinite(tokens)) run_.tokens += tokens;
    if (std::isfinite(samples)) samples_per_second_.push_back(samples);
    if (std::isfinite(tokens) && ms > 0) {
      tokens_per_second_.push_back(tokens / (ms / 1e3));
      add_value(rate_, tokens_per_second_.back());
    }
  }

  void take_line() {
    for (const auto& [name, value] : line_.values)
      if (name != rate_) add_value(name, value);
    if (const std::optional<double> loss = line_.value(loss_)) take_step(*loss);
  }

  std::vector<Section> sections_;
  size_t columns_, at_ = 0;
  StepRange range_;
  SeriesBuilder elapsed_;
  MetricNames names_;
  const size_t loss_ = names_.index_of("loss"), skipped_ = names_.index_of("skipped"),
               ms_ = names_.index_of("step_ms"), tokens_ = names_.index_of("tokens"),
               samples_ = names_.index_of("samples_per_second"),
               rate_ = names_.index_of(std::string(kTokensPerSecond));
  MetricsLine line_;
  std::vector<Curve> curves_;  // by name
  std::vector<double> step_ms_, tokens_per_second_, samples_per_second_;
  double newest_ = 0;
  int64_t lines_ = 0;
  RunMetrics run_;
};

}  // namespace

const Metric* RunMetrics::find(std::string_view name) const {
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  return found == metrics.end() ? nullptr : &*found;
}

RunMetrics read_run_metrics(const std::string& path, size_t columns) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return {};
  const InputFile file(path, "the metrics of a run");
  Outline outline;
  const LinesRead read =
      read_lines(file, file.size(), [&outline](std::string_view line) { outline.add(line); });
  Collector collector(outline.sections(), columns);
  read_lines(file, read.bytes, [&collector](std::string_view line) { collector.add(line); });
  return collector.take(read.torn);
}

}  // namespace dstrain::report
