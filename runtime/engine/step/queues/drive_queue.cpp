#include "runtime/engine/step/queues/drive_queue.h"

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

void DriveQueue::post(DiskArena& disk, OpKind op, const Tensor& from, const Tensor& to) {
  times_.push_back({monotonic_ns(), 0});
  tickets_.push_back(op == OpKind::swap_in ? disk.read(from, to) : disk.write(from, to));
}

void DriveQueue::pass() {
  const int64_t now = monotonic_ns();
  times_.push_back({now, now});
  tickets_.emplace_back();
}

void DriveQueue::wait(int32_t count) {
  for (; complete_ < static_cast<size_t>(count); ++complete_) {
    if (!tickets_[complete_]) continue;
    tickets_[complete_]->wait();
    times_[complete_].end_ns = monotonic_ns();
  }
}

void DriveQueue::restart() {
  check(complete_ == tickets_.size(), "a step ended with {} transfers of {} complete", complete_,
        tickets_.size());
  tickets_.clear();
  times_.clear();
  complete_ = 0;
}

}  // namespace dstrain
