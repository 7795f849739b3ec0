#include "runtime/engine/metrics/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/log/log.h"
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

// Returns `,"NAME":{...}`; empty if there are no values.
std::string members(std::string_view name,
                    const std::vector<std::pair<std::string, double>>& values) {
  std::string text;
  for (const auto& [of, value] : values)
    text += fmt::format(R"({}"{}":{})", text.empty() ? "" : ",", of, number(value));
  return text.empty() ? text : fmt::format(R"(,"{}":{{{}}})", name, text);
}

// Returns `,"PREFIXNAME":...` of each value.
std::string named_values(std::string_view prefix, const NamedLosses& values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format(",{}:{}", nlohmann::json(fmt::format("{}{}", prefix, name)).dump(),
                        number(value));
  return text;
}

}  // namespace

std::string to_json(const StepMetrics& m) {
  const auto unless_zero = [](std::string_view name, int64_t bytes) {
    return bytes == 0 ? "" : fmt::format(R"(,"{}":{})", name, bytes);
  };
  return fmt::format(
      R"({{"step":{},"loss":{},"lr":{},"grad_norm":{},"loss_scale":{},"skipped":{},"tokens":{},)"
      R"("samples_per_second":{},"step_ms":{},"peak_bytes":{},"comm_bytes":{}{}{}{}{}{}}})"
      "\n",
      m.step, number(m.loss), number(m.lr), number(m.grad_norm), number(m.loss_scale), m.skipped,
      m.tokens, number(m.samples_per_second), number(m.step_ms), m.peak_bytes, m.comm_bytes,
      unless_zero("host_bytes", m.host_bytes), unless_zero("disk_bytes", m.disk_bytes),
      members("codec_error", m.codec_error), members("losses", m.losses),
      named_values("", m.metrics));
}

std::string to_json(const ValidationMetrics& m) {
  return fmt::format("{{\"step\":{},\"val_loss\":{}{}{}}}\n", m.step, number(m.loss),
                     members("val_losses", m.losses), named_values("val_", m.metrics));
}

MetricsFile::MetricsFile(std::string path, int64_t resumed_step)
    : path_(std::move(path)), resumed_step_(resumed_step) {
  const OutputFile file = open_output_file(path_, O_RDWR | O_APPEND);
  file_ = file.descriptor;
  if (file_ < 0) fail_run("cannot write {}: {}", path_, file.problem);
  if (resumed_step_ > 0) {
    const KeptLines kept = lines_through(file_, resumed_step_);
    bytes_ = kept.bytes;
    resumed_validated_ = kept.validated;
  }
  if (::ftruncate(file_, bytes_) != 0) fail_run("cannot write {}: {}", path_, system_reason(errno));
}

MetricsFile::~MetricsFile() {
  if (file_ >= 0) ::close(file_);
}

void MetricsFile::step(const StepMetrics& metrics) {
  append(metrics.step, to_json(metrics));
}

void MetricsFile::validation(const ValidationMetrics& metrics) {
  if (metrics.step != resumed_step_ || !resumed_validated_) append(metrics.step, to_json(metrics));
}

void MetricsFile::append(int64_t step, std::string_view line) {
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
      log::warn("cannot write {}: {}; lines are left out from step {} on", path_,
                system_reason(reason), step);
    return;
  }
  bytes_ += static_cast<int64_t>(line.size());
  if (lacking_ > 0)
    log::warn("{} has lines again from step {} on, {} before {} left out", path_, step, lacking_,
              lacking_ == 1 ? "is" : "are");
  lacking_ = 0;
}

}  // namespace dstrain
