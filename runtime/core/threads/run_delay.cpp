#include "runtime/core/threads/run_delay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

namespace dstrain {
namespace {

using namespace std::chrono_literals;

constexpr auto kInterval = 4ms;
constexpr auto kLeast = 200us;  // less is the kernel's own work

}  // namespace

// The kernel's file has nanoseconds on a core and nanoseconds in a queue. Where there is no such file, both stay 0.
bool RunDelay::read() {
  const int file = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 96> text{};
  const ssize_t bytes = ::read(file, text.data(), text.size());
  ::close(file);
  if (bytes <= 0) return false;
  const char* const end = text.data() + bytes;
  int64_t ran = 0, waited = 0;
  const auto first = std::from_chars(text.data(), end, ran);
  if (first.ec != std::errc() || first.ptr == end) return false;
  if (std::from_chars(first.ptr + 1, end, waited).ec != std::errc()) return false;
  ran_ = std::chrono::nanoseconds(ran);
  waited_ = std::chrono::nanoseconds(waited);
  return true;
}

bool RunDelay::was_kept_waiting() {
  const auto now = Clock::now();
  if (now - last_ < kInterval) return false;
  last_ = now;
  if (std::exchange(left_out_, false)) {
    read();
    return false;
  }
  const auto ran = ran_, waited = waited_;
  if (!read()) return false;
  const auto delay = waited_ - waited;
  return delay > kLeast && 5 * delay > delay + (ran_ - ran);
}

}  // namespace dstrain
