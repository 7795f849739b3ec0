#include "runtime/engine/metrics/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/config/text.h"
#include "runtime/core/text.h"

namespace dstrain {
namespace {

std::string memory_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value < 1e9 ? fmt::format("{:.3g}MB", value / 1e6) : fmt::format("{:.2f}GB", value / 1e9);
}

// Returns "12.3k " for a number in so many seconds; "? " where no time has passed.
std::string rate_text(double number, double seconds) {
  if (!(seconds > 0)) return "? ";
  const double rate = number / seconds;
  for (const auto& [unit, mark] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (rate >= unit) return fmt::format("{:.3g}{} ", rate / unit, mark);
  return fmt::format("{:.3g} ", rate);
}

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "not a finite number";
}

}  // namespace

std::string log_line(const StepMetrics& m) {
  std::string line =
      fmt::format("step={} loss={} lr={:.4g} grad_norm={} samples/s={:.4g} mem={}", m.step,
                  number_text(m.loss, ".4f"), m.lr, number_text(m.grad_norm, ".4g"),
                  m.samples_per_second, memory_text(m.peak_bytes));
  for (const auto& [name, value] : m.metrics)
    line += fmt::format(" {}={}", printable(name), number_text(value, ".4f"));
  if (m.loss_scale != 1) line += fmt::format(" loss_scale={:g}", m.loss_scale);
  for (const auto& [of, error] : m.codec_error)
    line += fmt::format("{}{}={}", of == m.codec_error.front().first ? " codec_error " : " ", of,
                        number_text(error, ".2g"));
  if (m.skipped)
    line += m.tokens > 0 ? " (overflow: update skipped)"
                         : " (no token counts in the loss: update skipped)";
  return line;
}

std::string micro_batch_line(const PhaseTimes& t) {
  return fmt::format(
      "time (ms) | fwd_microstep: {:.2f} | bwd_microstep: {:.2f} | bwd_inner_microstep: {:.2f} | "
      "bwd_allreduce_microstep: {:.2f} | step_microstep: {:.2f}",
      t.forward, t.backward(), t.backward_inner, t.backward_allreduce, t.step);
}

std::string phases_line(const PhaseTimes& t) {
  return fmt::format(
      "time (ms) | fwd: {:.2f} | bwd: {:.2f} | bwd_inner: {:.2f} | bwd_allreduce: {:.2f} | "
      "step: {:.2f}",
      t.forward, t.backward(), t.backward_inner, t.backward_allreduce, t.step);
}

std::string messages_line(const MessageTimes& t) {
  return fmt::format(
      "time (ms) | pipe_send_output: {:.2f} | pipe_send_grad: {:.2f} | pipe_recv_input: {:.2f} | "
      "pipe_recv_grad: {:.2f}",
      t.send_output, t.send_grad, t.recv_input, t.recv_grad);
}

std::string live_text(const StepMetrics& m, const LiveRates& rates) {
  const double seconds = rates.step_ms / 1e3;
  const auto left = static_cast<double>(std::max<int64_t>(rates.steps - m.step, 0));
  std::string text =
      fmt::format("loss {} | {} left", number_text(m.loss, ".4f"), duration_text(left * seconds));
  for (const auto& [name, value] : m.metrics)
    text += fmt::format(" | {} {}", printable(name), number_text(value, ".4f"));
  if (rates.tokens) text += fmt::format(" | {}tokens/s", rate_text(m.tokens, seconds));
  const double samples = m.samples_per_second * m.step_ms / 1e3;
  text += fmt::format(" | {}samples/s", rate_text(samples, seconds));
  if (rates.full_rate_s > 0 && seconds > 0) {
    const double percent = 100 * rates.full_rate_s / seconds;
    text += fmt::format(" | MFU {:.{}f}%", percent, percent < 10 ? 1 : 0);
  }
  return text + " | mem " + memory_text(m.peak_bytes);
}

std::string validation_text(const ValidationMetrics& m, bool perplexity) {
  std::string text = "validation loss " + number_text(m.loss, ".4f");
  if (perplexity) text += ", perplexity " + number_text(std::exp(m.loss), ".4g");
  for (const auto& [name, value] : m.metrics)
    text += fmt::format(", {} {}", printable(name), number_text(value, ".4f"));
  return text;
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto s = std::llround(seconds);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string last_line(int64_t all_steps, const std::string& output, const RunEnd& end) {
  const int64_t now = end.first_step + end.steps;
  std::string line = end.stopped      ? fmt::format("stopped after step {} of {}", now, all_steps)
                     : end.steps == 0 ? "done: no step"
                                      : fmt::format("done: step {} of {}", now, all_steps);
  line += fmt::format(", {}", duration_text(end.seconds));
  if (end.skipped > 0)
    line += fmt::format("; {} of {} skipped (overflow)", end.skipped, counted(end.steps, "update"));
  if (end.without_targets > 0)
    line += fmt::format("; {} of {} skipped (no token of the batch counts in the loss)",
                        end.without_targets, counted(end.steps, "update"));
  if (end.loss) line += fmt::format("; loss {}", loss_text(*end.loss));
  if (end.validation_loss)
    line += fmt::format("; validation loss {}", loss_text(*end.validation_loss));
  line += fmt::format("; results in {}", output);
  if (end.stopped && end.saved) line += fmt::format("; --resume {} goes on", output);
  return line;
}

}  // namespace dstrain
