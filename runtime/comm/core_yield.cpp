#include "runtime/comm/core_yield.h"

#include <sched.h>

namespace dstrain {

bool CoreYield::yield() {
  const auto began = Clock::now();
  if (!may_yield(began)) return false;
  ::sched_yield();
  note(began, Clock::now());
  return true;
}

void CoreYield::note(Clock::time_point began, Clock::time_point ended) {
  constexpr std::chrono::microseconds kLong{500};
  constexpr int kTimes = 64;
  if (ended - began > kLong) not_before_ = ended + kTimes * (ended - began);
}

}  // namespace dstrain
