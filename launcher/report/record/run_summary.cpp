#include "launcher/report/record/run_summary.h"

#include <fmt/format.h>

#include <cmath>

#include "launcher/report/chart/ticks.h"
#include "runtime/core/text.h"
#include "runtime/engine/metrics/metrics_text.h"

namespace dstrain::report {
namespace {

double most_of(const RunMetrics& metrics, std::string_view name) {
  const Metric* const metric = metrics.find(name);
  return metric != nullptr ? metric->values.most.y : RunSummary::kNone;
}

double mean_of(const RunMetrics& metrics, std::string_view name) {
  const Metric* const metric = metrics.find(name);
  return metric != nullptr ? metric->values.mean() : RunSummary::kNone;
}

}  // namespace

RunSummary summary_of(const RunRecord& run) {
  const RunMetrics& metrics = run.metrics;
  RunSummary summary;
  summary.final_loss = metrics.final_loss;
  if (const Metric* const loss = metrics.find("loss")) {
    summary.best_loss = loss->values.least.y;
    summary.best_loss_step = loss->values.least.x;
  }
  if (const Metric* const loss = metrics.find("val_loss")) {
    summary.final_validation = loss->values.last;
    summary.best_validation = loss->values.least.y;
    summary.best_validation_step = loss->values.least.x;
  }
  summary.tokens_per_second = metrics.tokens_per_second;
  summary.samples_per_second = metrics.samples_per_second;
  summary.step_ms = metrics.step_ms;
  if (!metrics.elapsed.empty()) summary.seconds = metrics.seconds;
  summary.mfu = mean_of(metrics, "mfu");
  summary.memory_mean = mean_of(metrics, "peak_bytes");
  summary.memory_peak = most_of(metrics, "peak_bytes");
  summary.host_peak = most_of(metrics, "host_bytes");
  summary.disk_peak = most_of(metrics, "disk_bytes");
  summary.comm_mean = mean_of(metrics, "comm_bytes");
  return summary;
}

const std::vector<SummaryLine>& summary_lines() {
  using Form = SummaryLine::Form;
  static const std::vector<SummaryLine> lines = {
      {"final_loss", "final loss", &RunSummary::final_loss, Form::loss},
      {"best_loss", "best loss", &RunSummary::best_loss, Form::loss},
      {"best_loss_step", "at step", &RunSummary::best_loss_step, Form::step},
      {"final_val_loss", "final validation loss", &RunSummary::final_validation, Form::loss},
      {"best_val_loss", "best validation loss", &RunSummary::best_validation, Form::loss},
      {"best_val_loss_step", "at step", &RunSummary::best_validation_step, Form::step},
      {"tokens_per_second", "tokens/s, median", &RunSummary::tokens_per_second, Form::rate},
      {"samples_per_second", "samples/s, median", &RunSummary::samples_per_second, Form::rate},
      {"step_ms", "step time, median", &RunSummary::step_ms, Form::milliseconds},
      {"seconds", "time of all steps", &RunSummary::seconds, Form::duration},
      {"mfu", "MFU, mean", &RunSummary::mfu, Form::percent},
      {"peak_bytes_mean", "memory of a rank, mean", &RunSummary::memory_mean, Form::bytes},
      {"peak_bytes", "memory of a rank, peak", &RunSummary::memory_peak, Form::bytes},
      {"host_bytes", "host memory, peak", &RunSummary::host_peak, Form::bytes},
      {"disk_bytes", "disk, peak", &RunSummary::disk_peak, Form::bytes},
      {"comm_bytes", "sent in a step, mean", &RunSummary::comm_mean, Form::bytes}};
  return lines;
}

std::string summary_text(double value, SummaryLine::Form form) {
  if (std::isnan(value)) return "–";
  switch (form) {
    case SummaryLine::Form::loss:
      return fmt::format("{:.4f}", value);
    case SummaryLine::Form::step:
      return fmt::format("{:.0f}", value);
    case SummaryLine::Form::rate:
      return short_text(value);
    case SummaryLine::Form::milliseconds:
      return value < 1e4 ? short_text(value) + " ms" : short_text(value / 1e3) + " s";
    case SummaryLine::Form::duration:
      return value < 10 ? short_text(value) + " s" : duration_text(value);
    case SummaryLine::Form::percent:
      return fmt::format("{:.1f} %", 100 * value);
    case SummaryLine::Form::bytes:
      break;
  }
  return bytes_text(value);
}

}  // namespace dstrain::report
