// JobSuspension: whether stopped ranks are a job that its owner has suspended, which must not end the run. Pure. Times are
// in nanoseconds.
#pragma once

#include <cstdint>
#include <optional>

namespace dstrain {

class JobSuspension {
 public:
  // Notes whether all ranks are stopped. Returns whether a stopped rank is no fault: while all are, and for four seconds
  // after that, as hosts continue and report it one after the other.
  bool excuses(bool all_stopped, int64_t now_ns) {
    if (all_stopped) stopped_ns_ = now_ns;
    return stopped_ns_ && now_ns - *stopped_ns_ < kResumption;
  }

 private:
  static constexpr int64_t kResumption = 4'000'000'000;

  std::optional<int64_t> stopped_ns_;  // when all were last seen stopped
};

}  // namespace dstrain
