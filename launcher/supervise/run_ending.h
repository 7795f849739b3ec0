// RunEnding: the course of a run's end after a fault, as a supervisor or a leading watcher follows it: the faults settle,
// the root cause is chosen, the ranks are told to end, and those that still run are killed. Pure. Times are in
// nanoseconds.
#pragma once

#include <cstdint>

namespace dstrain {

class RunEnding {
 public:
  // `settling_ns`: between the first fault and the choice of the root cause, while further faults of the same cause are
  // reported.
  explicit RunEnding(int64_t settling_ns) : settling_ns_(settling_ns) {}

  // Notes whether there is a fault, and whether ranks report failures of their peers alone: the rank that they name ends
  // some time later. Returns whether the root cause can be chosen.
  bool settled(bool fault, bool only_peer_failures, int64_t now_ns) {
    if (!fault)
      fault_ns_ = 0;
    else if (fault_ns_ == 0)
      fault_ns_ = now_ns;
    return fault && now_ns - fault_ns_ >= (only_peer_failures ? kSettlePeerFailures : settling_ns_);
  }
  bool has_fault() const { return fault_ns_ != 0; }

  // Notes that the ranks are told to end.
  void begin(int64_t now_ns) { begin_ns_ = now_ns; }
  bool begun() const { return begin_ns_ != 0; }
  // Returns whether they were told at least `ns` ago.
  bool lasts(int64_t ns, int64_t now_ns) const { return begun() && now_ns - begin_ns_ >= ns; }
  // Returns whether ranks that still run are to be killed. They may have ended by themselves before, and mpirun notices
  // that.
  bool kills_ranks(int64_t now_ns) const { return lasts(1'000'000'000, now_ns); }
  // Returns whether what still runs is left to itself, or killed with whatever runs it.
  bool gives_up(int64_t now_ns) const { return lasts(6'000'000'000, now_ns); }

 private:
  static constexpr int64_t kSettlePeerFailures = 3'000'000'000;

  int64_t settling_ns_;
  int64_t fault_ns_ = 0, begin_ns_ = 0;
};

}  // namespace dstrain
