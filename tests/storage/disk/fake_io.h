// FakeIo: system calls that fail where a test says so, and work as the real ones elsewhere.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "runtime/storage/disk/io_calls.h"

namespace dstrain {

class FakeIo : public IoCalls {
 public:
  // What a completed request reports instead of `result`; by default nothing is changed.
  using Change = std::function<int64_t(const iocb& request, int64_t result)>;

  void change_results(Change change) {
    const std::lock_guard lock(mutex_);
    change_ = std::move(change);
  }
  // The next `count` submissions fail with `error`; -1: all of them.
  void fail_submissions(int error, int count) {
    submit_error_ = error;
    failing_submissions_ = count;
  }
  // Completions are held back while this is so.
  void hold_completions(bool held) { held_ = held; }

  std::optional<int64_t> free_bytes(const std::string& directory) override {
    return free ? free : IoCalls::free_bytes(directory);
  }
  int create_unnamed(const std::string& directory) override {
    if (no_unnamed) return -EOPNOTSUPP;
    return create_error != 0 ? -create_error : IoCalls::create_unnamed(directory);
  }
  int create(const std::string& path) override {
    return create_error != 0 ? -create_error : IoCalls::create(path);
  }
  int reserve(int file, int64_t bytes) override {
    return reserve_error != 0 ? -reserve_error : IoCalls::reserve(file, bytes);
  }
  int set_direct(int file, bool direct) override {
    return direct && no_direct ? -EINVAL : IoCalls::set_direct(file, direct);
  }
  int64_t read(int file, std::span<std::byte> block) override {
    return no_direct_reads ? -EINVAL : IoCalls::read(file, block);
  }
  int setup(int most_in_flight, io_context_t* context) override {
    if (refused_setups > 0) {
      --refused_setups;
      return -EAGAIN;
    }
    return setup_error != 0 ? -setup_error : IoCalls::setup(most_in_flight, context);
  }
  int submit(io_context_t context, std::span<iocb*> requests) override {
    ++submissions;
    largest_submission = std::max<size_t>(largest_submission, requests.size());
    if (failing_submissions_ != 0) {
      if (failing_submissions_ > 0) --failing_submissions_;
      return -submit_error_;
    }
    return IoCalls::submit(context, requests.first(std::min(requests.size(), most_at_a_time)));
  }
  int completions(io_context_t context, int least, std::span<io_event> events,
                  std::chrono::nanoseconds time) override {
    if (held_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return 0;
    }
    if (completion_error != 0) return -completion_error.exchange(0);
    const int count = IoCalls::completions(context, least, events, time);
    const std::lock_guard lock(mutex_);
    for (int i = 0; change_ && i < count; ++i) {
      io_event& event = events[static_cast<size_t>(i)];
      event.res = static_cast<unsigned long>(change_(*event.obj, static_cast<int64_t>(event.res)));
    }
    return count;
  }

  // Set before the store exists.
  std::optional<int64_t> free;
  int create_error = 0, reserve_error = 0, setup_error = 0;
  int refused_setups = 0;  // before the kernel has room
  bool no_unnamed = false, no_direct = false, no_direct_reads = false;
  size_t most_at_a_time = 1 << 20;
  std::atomic<int> completion_error{0};

  std::atomic<int> submissions{0};
  std::atomic<size_t> largest_submission{0};

 private:
  std::mutex mutex_;
  Change change_;
  std::atomic<int> submit_error_{0}, failing_submissions_{0};
  std::atomic<bool> held_{false};
};

}  // namespace dstrain
