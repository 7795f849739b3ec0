// Whether a thread's cores are its own: how long it was ready to run while others had them.
#pragma once

#include <chrono>

namespace dstrain {

// Watches the thread that made it.
class RunDelay {
 public:
  RunDelay() { read(); }

  // Returns whether the thread was ready to run without a core for more than a fifth of the time that it needed since
  // the last look. Looks at most every few milliseconds, because the kernel is asked, and returns false in between.
  bool was_kept_waiting();
  // Leaves out the time until the next look: a thread that sleeps between its parts waits whenever it is woken.
  void leave_out() { left_out_ = true; }

 private:
  bool read();

  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  std::chrono::nanoseconds ran_{}, waited_{};
  bool left_out_ = false;
};

}  // namespace dstrain
