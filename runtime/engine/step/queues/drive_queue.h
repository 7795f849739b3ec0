// DriveQueue: what a step reads from disk and writes there, beside computation.
#pragma once

#include <optional>
#include <vector>

#include "runtime/engine/disk/disk_arena.h"
#include "runtime/engine/step/trace.h"

namespace dstrain {

class DriveQueue {
 public:
  // `most`: number of operations of a step.
  explicit DriveQueue(size_t most) {
    tickets_.reserve(most);
    times_.reserve(most);
  }

  // Begins an operation of `disk`, swap_in or swap_out, and returns.
  void post(DiskArena& disk, OpKind op, const Tensor& from, const Tensor& to);
  // Counts as an operation that was posted, and does nothing.
  void pass();
  // Waits for the first `count` operations posted since restart(). Throws RunError if one failed.
  void wait(int32_t count);
  // Waits for all of them.
  void wait_for_all() { wait(static_cast<int32_t>(tickets_.size())); }
  // Returns when the i-th operation of the step was posted, and when it was found complete.
  TimeSpan times(size_t i) const { return times_[i]; }
  // Starts a new step. The caller must have waited for all operations.
  void restart();

 private:
  std::vector<std::optional<DiskStore::Ticket>> tickets_;  // of this step; none: passed
  std::vector<TimeSpan> times_;
  size_t complete_ = 0;
};

}  // namespace dstrain
