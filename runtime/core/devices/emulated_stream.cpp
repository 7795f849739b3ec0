#include "runtime/core/devices/emulated_stream.h"

#include <utility>

#include "runtime/core/devices/emulated_capture.h"
#include "runtime/core/error.h"

namespace dstrain {

EmulatedStream::EmulatedStream() : thread_([this] { run(); }) {}

EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EmulatedStream::submit(std::function<void()> work) {
  // Not under this stream's mutex, because a capture locks its own before those of its streams.
  if (const CaptureLane place = capture(); place.capture)
    return place.capture->add(place.lane, std::move(work));
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void EmulatedStream::synchronize() {
  std::unique_lock lock(mutex_);
  if (capture_.capture)
    fail_run("the host waits for a stream whose work is being captured (CUDA's error 900)");
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  if (failure_) std::rethrow_exception(failure_);
}

void EmulatedStream::set_capture(CaptureLane lane) {
  const std::lock_guard lock(mutex_);
  capture_ = std::move(lane);
}

CaptureLane EmulatedStream::capture() const {
  const std::lock_guard lock(mutex_);
  return capture_;
}

void EmulatedStream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    if (failure_) {
      changed_.notify_all();
      continue;
    }
    busy_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (failure) failure_ = failure;
    changed_.notify_all();
  }
}

}  // namespace dstrain
