#include "runtime/engine/metrics/metrics_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/core/log/log.h"
#include "runtime/core/rank_board.h"
#include "runtime/core/text.h"
#include "runtime/core/threads/without_signals.h"
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
    : options_(std::move(options)), live_(LiveLine::where_shown()) {
  if (!live_) return;
  const WithoutSignals without;
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

MetricsLog::~MetricsLog() {
  clear();
}

void MetricsLog::begin() {
  show(options_.resumed_step, "first step");
}

void MetricsLog::step(const StepMetrics& metrics) {
  times_.add(metrics.step_ms);
  const bool prints = options_.steps_per_print > 0 && metrics.step % options_.steps_per_print == 0;
  if (prints) log::info("{}", log_line(metrics));
  if (metrics.phases && (options_.all_phases || prints)) log_phases(*metrics.phases);
  if (live_)
    show(metrics.step, live_text(metrics, {.steps = options_.steps,
                                           .step_ms = times_.median(),
                                           .full_rate_s = options_.full_rate_s,
                                           .tokens = options_.tokens}));
}

void MetricsLog::log_phases(const StepPhases& phases) {
  for (const PhaseTimes& times : phases.micro_batches) log::info("{}", micro_batch_line(times));
  log::info("{}", phases_line(phases.all()));
  if (phases.messages) log::info("{}", messages_line(*phases.messages));
}

void MetricsLog::validation(const ValidationMetrics& metrics) {
  log::info("step {}: {}", metrics.step, validation_text(metrics, options_.tokens));
}

void MetricsLog::validating(int64_t step, int64_t done, int64_t all) {
  show(step, fmt::format("validation {}/{}", done, all));
}

void MetricsLog::end(const RunEnd& end) {
  clear();
  log::info("{}", last_line(options_.steps, options_.output, end));
}

void MetricsLog::show(int64_t step, std::string what) {
  if (!live_) return;
  const std::lock_guard lock(mutex_);
  step_ = step;
  what_ = std::move(what);
  since_ns_ = monotonic_ns();
  if (live_->due()) draw(0);
}

// Draws the live line, `seconds` after its news. The caller holds the mutex.
void MetricsLog::draw(double seconds) {
  const std::string quiet =
      seconds < options_.quiet_seconds ? "" : fmt::format(" ({} ago)", duration_text(seconds));
  live_->draw(fmt::format("step {}/{}{} | {}", step_, options_.steps, quiet, what_));
}

void MetricsLog::clear() {
  if (!live_) return;
  const std::lock_guard lock(mutex_);
  what_.clear();
  live_->clear();
}

void MetricsLog::watch(const std::stop_token& stop) {
  const auto period = std::chrono::duration<double>(std::min(options_.quiet_seconds, 1.0));
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, stop, period, [&] { return stop.stop_requested(); })) {
    const double seconds = static_cast<double>(monotonic_ns() - since_ns_) * 1e-9;
    if (!what_.empty() && seconds >= options_.quiet_seconds) draw(seconds);
  }
}

}  // namespace dstrain
