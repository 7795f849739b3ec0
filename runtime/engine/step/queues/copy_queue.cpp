#include "runtime/engine/step/queues/copy_queue.h"

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

CopyQueue::CopyQueue(const Backend& backend, size_t most)
    : backend_(backend), stream_(backend.device->make_stream()), copies_(most) {
  for (Copy& copy : copies_) {
    copy.ready = backend.device->make_event();
    copy.done = backend.device->make_event();
  }
}

CopyQueue::~CopyQueue() {
  try {
    stream_->synchronize();
  } catch (...) {  // the step has thrown the failure; a stream that failed copies nothing any more
  }
}

CopyQueue::Copy& CopyQueue::next() {
  check(posted_ < copies_.size(), "a step posts more than {} copies", copies_.size());
  return copies_[posted_++];
}

void CopyQueue::post(const Tensor& from, const Tensor& to) {
  Copy& copy = next();
  copy.time.begin_ns = monotonic_ns();
  copy.ready->record(*backend_.compute);
  stream_->wait(*copy.ready);
  stream_->copy(to.data, from.data, to.bytes());
  copy.done->record(*stream_);
  copy.time.end_ns = backend_.device->is_host() ? monotonic_ns() : copy.time.begin_ns;
}

void CopyQueue::pass() {
  Copy& copy = next();
  copy.done->record(*stream_);
  copy.time.begin_ns = copy.time.end_ns = monotonic_ns();
}

void CopyQueue::wait(int32_t count) {
  const auto target = static_cast<size_t>(count);
  if (target <= waited_) return;
  backend_.compute->wait(*copies_[target - 1].done);
  waited_ = target;
}

void CopyQueue::synchronize(int32_t count) {
  const auto target = static_cast<size_t>(count);
  if (target <= synchronized_) return;
  copies_[target - 1].done->synchronize();
  const int64_t now = monotonic_ns();
  for (; synchronized_ < target; ++synchronized_)
    if (TimeSpan& time = copies_[synchronized_].time; time.size() == 0) time.end_ns = now;
}

void CopyQueue::restart() {
  check(waited_ == posted_, "a step ended with {} copies of {} awaited", waited_, posted_);
  posted_ = waited_ = synchronized_ = 0;
}

}  // namespace dstrain
