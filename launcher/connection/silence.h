// Silence: measures the time for which the other end of a connection has sent nothing. Time in which this process was
// suspended or blocked, and so could not receive, does not count. Pure. Times are in nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain {

// The interval at which each end of a connection sends at least something.
inline constexpr int64_t kHeartbeat = 1'000'000'000;

// The silence after which one end takes the other for lost, unless dstrain.silence_s says otherwise.
inline constexpr int64_t kLongestSilence = 5'000'000'000;

class Silence {
 public:
  explicit Silence(int64_t now_ns) : last_update_ns_(now_ns) {}

  // The caller must call this whenever it has read from the connection.
  void update(int64_t now_ns) {
    silent_ns_ += std::min(now_ns - last_update_ns_, kMostBetweenUpdates);
    last_update_ns_ = now_ns;
  }
  // Notes that something was received.
  void heard() { silent_ns_ = 0; }
  int64_t ns() const { return silent_ns_; }

 private:
  static constexpr int64_t kMostBetweenUpdates = 1'000'000'000;
  int64_t last_update_ns_;
  int64_t silent_ns_ = 0;
};

}  // namespace dstrain
