// CoreYield: lets other threads run while a thread waits for one of them, as long as none of them keeps the core. A
// thread that yields goes behind all others, so beside a busy process each yield costs a whole time slice of that
// process, milliseconds. A thread that sleeps instead gets the core soon after it wakes up.
#pragma once

#include <chrono>

namespace dstrain {

class CoreYield {
 public:
  using Clock = std::chrono::steady_clock;

  // Yields the core and returns true; returns false at once if may_yield() does, and the caller should sleep.
  bool yield();

  // Returns whether no yield has taken long lately.
  bool may_yield(Clock::time_point now) const { return now >= not_before_; }
  // Takes note of a yield. After one that took more than half a millisecond none follows for 64 times as long.
  void note(Clock::time_point began, Clock::time_point ended);

 private:
  Clock::time_point not_before_{};
};

}  // namespace dstrain
