// Silence: for how long the other end of a connection has said nothing while this process was there to hear it.
// Pure. Time in which this process was itself suspended, or blocked, does not count.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dstrain {

class Silence {
 public:
  explicit Silence(int64_t now_ns) : last_look_ns_(now_ns) {}

  // Call it as often as the connection is read.
  void look(int64_t now_ns) {
    silent_ns_ += std::min(now_ns - last_look_ns_, kMostBetweenLooks);
    last_look_ns_ = now_ns;
  }
  void heard() { silent_ns_ = 0; }
  int64_t ns() const { return silent_ns_; }

 private:
  static constexpr int64_t kMostBetweenLooks = 1'000'000'000;
  int64_t last_look_ns_;
  int64_t silent_ns_ = 0;
};

}  // namespace dstrain
