#include "runtime/core/log/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "runtime/core/log/log.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;
constexpr int kMostColumns = 40;  // of the bar itself
constexpr int kUsualColumns = 80;

void write_error(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

int terminal_columns(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

bool can_draw_bar(int descriptor) {
  const char* const type = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && (type == nullptr || std::string_view(type) != "dumb");
}

std::optional<ProgressBar> ProgressBar::where_shown() {
  if (!log::shows(log::Level::info)) return std::nullopt;
  if (can_draw_bar(STDERR_FILENO)) return ProgressBar(true, 0);
  const char* columns = std::getenv(kProgressVariable);
  if (columns == nullptr) return std::nullopt;
  const int count = std::atoi(columns);
  return ProgressBar(false, count > 0 ? count : kUsualColumns);
}

bool ProgressBar::due() const {
  return !drawn_ || monotonic_ns() - last_drawn_ns_ >= kRedrawNs;
}

void ProgressBar::draw(double part, std::string_view text) {
  const int columns = terminal_ ? terminal_columns(STDERR_FILENO) : columns_;
  const int width = std::clamp(columns - static_cast<int>(text.size()) - 4, 0, kMostColumns);
  const auto full = static_cast<size_t>(std::clamp(part, 0.0, 1.0) * width);
  std::string bar = fmt::format("[{:-<{}}] {}", std::string(full, '#'), width, text);
  // A longer one would go on in a second line, which is not erased.
  if (std::ssize(bar) >= columns) bar.resize(static_cast<size_t>(std::max(columns - 1, 0)));
  write_error(terminal_ ? "\r\x1b[K" + bar : bar + "\r");
  drawn_ = true;
  last_drawn_ns_ = monotonic_ns();
}

void ProgressBar::clear() {
  if (!drawn_) return;
  write_error(terminal_ ? "\r\x1b[K" : "\r");
  drawn_ = false;
}

}  // namespace dstrain
