// Stages: how a transport carries out one operation, written from the first step to the last as a
// coroutine. The coroutine suspends where it must wait for other ranks (co_await of an Awaited) and
// between two pieces of long work (co_await Pause()); the communicator resumes it from poll() and wait().
//
//   Stages SharedComm::run(Operation op) {
//     post(op);
//     group_->arrive();
//     co_await arrivals_;  // until all ranks of the group have arrived
//     ...
#pragma once

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/comm/operation.h"

namespace dstrain {

class OrderedComm;

// Something that an operation waits for: the arrivals of other ranks, or messages.
class Awaited {
 public:
  Awaited() = default;
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;
  virtual ~Awaited() = default;

  // Looks for it without blocking; returns whether the operation can go on. Throws RunError if the
  // transport fails.
  virtual bool ready() = 0;
  // Returns a rank that is waited for, or -1.
  virtual int waited_rank() = 0;
  // Blocks until it may be there, for `longest` at most. `earlier`: how many sleeps this wait has had already.
  virtual void sleep(int earlier, std::chrono::microseconds longest) = 0;
};

// An operation that has started, as a coroutine that can be resumed. See the head of this file.
class Stages {
 public:
  // co_await Pause() suspends without a wait, so that the piece of work before it stays short.
  struct Pause {};
  class promise_type;  // NOLINT(readability-identifier-naming): the language's name

  Stages() = default;
  Stages(Stages&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stages& operator=(Stages&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;
  ~Stages() {
    if (handle_) handle_.destroy();
  }

  // Whether there is an operation, complete or not.
  explicit operator bool() const { return static_cast<bool>(handle_); }
  // Runs on to the next wait or pause; returns false if the current wait is not over. Throws what the
  // operation throws; the caller must not resume it afterwards.
  bool resume();
  // Whether the operation has come to its end.
  bool complete() const { return handle_.done(); }
  // What the operation waits for; null at a pause.
  Awaited* awaited() const;

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Stages(Handle handle) : handle_(handle) {}

  Handle handle_;
};

// Memory for the frame of one coroutine at a time, so that operations after the first do not allocate.
class StageFrame {
 public:
  void* reserve(size_t bytes) {
    if (memory_.size() * sizeof(Block) < bytes) memory_.resize(bytes / sizeof(Block) + 1);
    return memory_.data();
  }

 private:
  struct alignas(std::max_align_t) Block {
    std::byte bytes[alignof(std::max_align_t)];
  };
  std::vector<Block> memory_;
};

class Stages::promise_type {
 public:
  // The frame of a member function `Stages run(Operation)` of a communicator.
  static void* operator new(size_t bytes, OrderedComm& comm, const Operation& op);
  static void operator delete(void*) noexcept {}  // the communicator keeps the memory

  Stages get_return_object() { return Stages(Handle::from_promise(*this)); }
  std::suspend_always initial_suspend() noexcept { return {}; }
  std::suspend_always final_suspend() noexcept { return {}; }
  void return_void() noexcept {}
  void unhandled_exception() { throw; }  // out of resume()

  std::suspend_always await_transform(Awaited& awaited) noexcept {
    awaited_ = &awaited;
    return {};
  }
  std::suspend_always await_transform(Pause) noexcept { return {}; }

 private:
  friend class Stages;
  Awaited* awaited_ = nullptr;
};

inline Awaited* Stages::awaited() const {
  return handle_.promise().awaited_;
}

inline bool Stages::resume() {
  promise_type& promise = handle_.promise();
  if (promise.awaited_ != nullptr && !promise.awaited_->ready()) return false;
  promise.awaited_ = nullptr;
  handle_.resume();
  return true;
}

}  // namespace dstrain
