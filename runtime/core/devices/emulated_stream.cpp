#include "runtime/core/devices/emulated_stream.h"

#include <utility>

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
  {
    const std::lock_guard lock(mutex_);
    if (capturing_) return captured_.push_back(std::move(work));
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void EmulatedStream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  if (failure_) std::rethrow_exception(failure_);
}

void EmulatedStream::begin_capture() {
  const std::lock_guard lock(mutex_);
  capturing_ = true;
}

std::vector<std::function<void()>> EmulatedStream::end_capture() {
  const std::lock_guard lock(mutex_);
  capturing_ = false;
  return std::exchange(captured_, {});
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
