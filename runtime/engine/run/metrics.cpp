#include "runtime/engine/run/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/log/log.h"
#include "runtime/core/rank_board.h"
#include "runtime/core/text.h"
#include "runtime/storage/output_file.h"

namespace dstrain {
namespace {

// Returns the shortest text that reads back as the same value; "null" if the value is not finite.
template <class Float>
std::string number(Float value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 40> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}

constexpr size_t kLongestLine = size_t{1}
                                << 20;  // of metrics.jsonl, whose lines have less than a KiB

// The first lines of the file that are complete and not later than a step.
struct KeptLines {
  int64_t bytes = 0;
  bool validated = false;  // the last of them is a validation of that step
};

// Counts a line. Returns false, and counts nothing, if the line is no object or later than `last_step`.
bool add_line(std::string_view line, int64_t last_step, KeptLines& kept) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return false;
  const auto step = object.find("step");
  if (step == object.end() || !step->is_number_integer() || *step > last_step) return false;
  kept.bytes += static_cast<int64_t>(line.size()) + 1;
  kept.validated = *step == last_step && object.contains("val_loss");
  return true;
}

KeptLines lines_through(int file, int64_t last_step) {
  std::string text;  // the beginning of a line, and what has been read after it
  std::array<char, 1 << 16> block{};
  KeptLines kept;
  while (text.size() < kLongestLine) {
    const ssize_t n = ::pread(file, block.data(), block.size(), kept.bytes + std::ssize(text));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(block.data(), static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      if (!add_line(std::string_view(text).substr(begin, end - begin), last_step, kept))
        return kept;
    text.erase(0, begin);
  }
  return kept;
}

std::string memory_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value < 1e9 ? fmt::format("{:.3g}MB", value / 1e6) : fmt::format("{:.2f}GB", value / 1e9);
}

// Returns `,"NAME":{...}`; empty if there are no values.
std::string members(std::string_view name,
                    const std::vector<std::pair<std::string, double>>& values) {
  std::string text;
  for (const auto& [of, value] : values)
    text += fmt::format(R"({}"{}":{})", text.empty() ? "" : ",", of, number(value));
  return text.empty() ? text : fmt::format(R"(,"{}":{{{}}})", name, text);
}

}  // namespace

std::string to_json(const StepMetrics& m) {
  const auto unless_zero = [](std::string_view name, int64_t bytes) {
    return bytes == 0 ? "" : fmt::format(R"(,"{}":{})", name, bytes);
  };
  return fmt::format(
      R"({{"step":{},"loss":{},"lr":{},"grad_norm":{},"loss_scale":{},"skipped":{},"tokens":{},)"
      R"("samples_per_second":{},"step_ms":{},"peak_bytes":{},"comm_bytes":{}{}{}{}{}}})"
      "\n",
      m.step, number(m.loss), number(m.lr), number(m.grad_norm), number(m.loss_scale), m.skipped,
      m.tokens, number(m.samples_per_second), number(m.step_ms), m.peak_bytes, m.comm_bytes,
      unless_zero("host_bytes", m.host_bytes), unless_zero("disk_bytes", m.disk_bytes),
      members("codec_error", m.codec_error), members("losses", m.losses));
}

std::string validation_json(int64_t step, double val_loss, const NamedLosses& val_losses) {
  return fmt::format("{{\"step\":{},\"val_loss\":{}{}}}\n", step, number(val_loss),
                     members("val_losses", val_losses));
}

std::string log_line(const StepMetrics& m) {
  std::string line =
      fmt::format("step={} loss={} lr={:.4g} grad_norm={} samples/s={:.4g} mem={}", m.step,
                  number_text(m.loss, ".4f"), m.lr, number_text(m.grad_norm, ".4g"),
                  m.samples_per_second, memory_text(m.peak_bytes));
  if (m.loss_scale != 1) line += fmt::format(" loss_scale={:g}", m.loss_scale);
  for (const auto& [of, error] : m.codec_error)
    line += fmt::format("{}{}={}", of == m.codec_error.front().first ? " codec_error " : " ", of,
                        number_text(error, ".2g"));
  if (m.skipped) line += " (overflow: update skipped)";
  return line;
}

std::string validation_text(double val_loss, bool perplexity) {
  std::string text = "validation loss " + number_text(val_loss, ".4f");
  if (perplexity) text += ", perplexity " + number_text(std::exp(val_loss), ".4g");
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

MetricsWriter::MetricsWriter(const MetricsOptions& options)
    : options_(options), bar_(ProgressBar::where_shown()) {
  const OutputFile file = open_output_file(options.path, O_RDWR | O_APPEND);
  file_ = file.descriptor;
  if (file_ < 0) fail_run("cannot write {}: {}", options.path, file.problem);
  if (options.resumed_step > 0) {
    const KeptLines kept = lines_through(file_, options.resumed_step);
    bytes_ = kept.bytes;
    resumed_validated_ = kept.validated;
  }
  if (::ftruncate(file_, bytes_) != 0)
    fail_run("cannot write {}: {}", options.path, system_reason(errno));
}

MetricsWriter::~MetricsWriter() {
  clear_progress();
  if (file_ >= 0) ::close(file_);
}

void MetricsWriter::step(const StepMetrics& metrics) {
  append(metrics.step, to_json(metrics));
  times_.add(metrics.step_ms);
  if (options_.steps_per_print > 0 && metrics.step % options_.steps_per_print == 0) {
    clear_progress();
    log::info("{}", log_line(metrics));
  }
  const int64_t left = std::max<int64_t>(options_.steps - metrics.step, 0);
  draw_progress(metrics.step,
                fmt::format("loss {} eta {}", number_text(metrics.loss, ".4f"),
                            duration_text(static_cast<double>(left) * times_.median() / 1e3)));
}

void MetricsWriter::validation(int64_t step, double val_loss, const NamedLosses& val_losses) {
  if (step != options_.resumed_step || !resumed_validated_)
    append(step, validation_json(step, val_loss, val_losses));
  clear_progress();
  log::info("step {}: {}", step, validation_text(val_loss, options_.perplexity));
}

void MetricsWriter::validating(int64_t step, int64_t done, int64_t all) {
  draw_progress(step, fmt::format("validation {}/{}", done, all));
}

void MetricsWriter::append(int64_t step, std::string_view line) {
  // What is left of a line that could not be written goes first.
  bool fails = lacking_ > 0 && ::ftruncate(file_, bytes_) != 0;
  for (size_t done = 0; !fails && done < line.size();) {
    const ssize_t written = ::write(file_, line.data() + done, line.size() - done);
    if (written >= 0)
      done += static_cast<size_t>(written);
    else
      fails = errno != EINTR;
  }
  if (fails) {
    const int reason = errno;
    [[maybe_unused]] const int removed = ::ftruncate(file_, bytes_);
    if (lacking_++ == 0)
      log::warn("cannot write {}: {}; lines are left out from step {} on", options_.path,
                system_reason(reason), step);
    return;
  }
  bytes_ += static_cast<int64_t>(line.size());
  if (lacking_ > 0)
    log::warn("{} has lines again from step {} on, {} before {} left out", options_.path, step,
              lacking_, lacking_ == 1 ? "is" : "are");
  lacking_ = 0;
}

void MetricsWriter::draw_progress(int64_t step, const std::string& what) {
  if (!bar_ || !bar_->due()) return;
  const double part =
      options_.steps > 0 ? static_cast<double>(step) / static_cast<double>(options_.steps) : 1;
  bar_->draw(part, fmt::format("{}/{} {}", step, options_.steps, what));
}

void MetricsWriter::clear_progress() {
  if (bar_) bar_->clear();
}

}  // namespace dstrain
