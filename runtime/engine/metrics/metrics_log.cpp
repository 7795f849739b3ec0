#include "runtime/engine/metrics/metrics_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/engine/metrics/metrics_text.h"

namespace dstrain {

void StepTimes::add(double milliseconds) {
  times_[count_ % kWindow] = milliseconds;
  ++count_;
}

double StepTimes::median() const {
  if (count_ == 0) return 0;
  auto sorted = times_;
  const auto used = static_cast<std::ptrdiff_t>(std::min(count_, kWindow));
  const auto middle = sorted.begin() + used / 2;
  std::nth_element(sorted.begin(), middle, sorted.begin() + used);
  if (used % 2 != 0) return *middle;
  return (*middle + *std::max_element(sorted.begin(), middle)) / 2;
}

MetricsLog::MetricsLog(MetricsLogOptions options)
    : options_(std::move(options)), bar_(ProgressBar::where_shown()) {}

MetricsLog::~MetricsLog() {
  clear_progress();
}

void MetricsLog::begin() {
  draw_progress(options_.resumed_step, "first step");
}

void MetricsLog::step(const StepMetrics& metrics) {
  times_.add(metrics.step_ms);
  const bool prints = options_.steps_per_print > 0 && metrics.step % options_.steps_per_print == 0;
  if (prints) {
    clear_progress();
    log::info("{}", log_line(metrics));
  }
  if (metrics.phases && (options_.all_phases || prints)) log_phases(*metrics.phases);
  const int64_t left = std::max<int64_t>(options_.steps - metrics.step, 0);
  draw_progress(metrics.step,
                fmt::format("loss {} eta {}", number_text(metrics.loss, ".4f"),
                            duration_text(static_cast<double>(left) * times_.median() / 1e3)));
}

void MetricsLog::log_phases(const StepPhases& phases) {
  clear_progress();
  for (const PhaseTimes& times : phases.micro_batches) log::info("{}", micro_batch_line(times));
  log::info("{}", phases_line(phases.all()));
  if (phases.messages) log::info("{}", messages_line(*phases.messages));
}

void MetricsLog::validation(const ValidationMetrics& metrics) {
  clear_progress();
  log::info("step {}: {}", metrics.step, validation_text(metrics.loss, options_.perplexity));
}

void MetricsLog::validating(int64_t step, int64_t done, int64_t all) {
  draw_progress(step, fmt::format("validation {}/{}", done, all));
}

void MetricsLog::end(const RunEnd& end) {
  clear_progress();
  log::info("{}", last_line(options_.steps, options_.output, end));
}

void MetricsLog::draw_progress(int64_t step, const std::string& what) {
  if (!bar_ || !bar_->due()) return;
  const double part =
      options_.steps > 0 ? static_cast<double>(step) / static_cast<double>(options_.steps) : 1;
  bar_->draw(part, fmt::format("{}/{} {}", step, options_.steps, what));
}

void MetricsLog::clear_progress() {
  if (bar_) bar_->clear();
}

}  // namespace dstrain
