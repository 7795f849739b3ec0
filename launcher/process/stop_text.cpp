#include "launcher/process/stop_text.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>

namespace dstrain {

std::string signal_text(int number) {
  return fmt::format("signal {} ({})", number, ::strsignal(number));
}

std::string stopped_before_steps(int number) {
  return fmt::format(
      "stopped by {} before the first step: this start has written no weights and no checkpoint",
      signal_text(number));
}

std::string stopped_at_once(int number, std::string_view why) {
  return fmt::format(
      "stopped at once by {}{}{}: the step is not finished, and weights and checkpoints are those "
      "of "
      "the last save, if there was one",
      signal_text(number), why.empty() ? "" : ", ", why);
}

void write_stop_line(std::string_view text) {
  pollfd error{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&error, 1, 0) != 1) return;
  const std::string line = fmt::format("{}{}\n", ::isatty(STDERR_FILENO) == 1 ? "\n" : "", text);
  // If the text cannot be written there is nothing to do.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace dstrain
