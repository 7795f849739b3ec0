#include "runtime/core/log/live_line.h"

#include <unistd.h>

#include <cstdlib>

#include "runtime/core/log/log.h"
#include "runtime/core/log/terminal.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;

}  // namespace

std::optional<LiveLine> LiveLine::where_shown() {
  if (!log::shows(log::Level::info)) return std::nullopt;
  if (can_erase_lines(STDERR_FILENO)) return LiveLine(true);
  if (std::getenv(kLiveLineVariable) == nullptr) return std::nullopt;
  return LiveLine(false);
}

bool LiveLine::due() const {
  return !drawn_ || monotonic_ns() - last_drawn_ns_ >= kRedrawNs;
}

void LiveLine::draw(std::string_view text) {
  terminal_ ? log::show_below(text) : log::send_below(text);
  drawn_ = true;
  last_drawn_ns_ = monotonic_ns();
}

void LiveLine::clear() {
  if (!drawn_) return;
  terminal_ ? log::show_below("") : log::send_below("");
  drawn_ = false;
}

}  // namespace dstrain
