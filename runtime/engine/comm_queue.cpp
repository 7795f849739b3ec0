#include "runtime/engine/comm_queue.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

Work start(Communicator& comm, OpKind op, Tensor in, Tensor out) {
  switch (op) {
    case OpKind::all_reduce:
      return comm.all_reduce(in);
    case OpKind::reduce_scatter:
      return comm.reduce_scatter(in, out);
    case OpKind::all_gather:
      return comm.all_gather(in, out);
    default:
      throw InternalError(fmt::format("{} is no collective", name_of(op)));
  }
}

class PolledQueue : public CommQueue {
 public:
  PolledQueue(Communicator& comm, size_t most) : comm_(comm) {
    works_.reserve(most);
    times_.reserve(most);
  }

  void post(OpKind op, Tensor in, Tensor out) override {
    times_.push_back({monotonic_ns(), 0});
    works_.push_back(start(comm_, op, in, out));
  }
  void wait(int32_t count) override {
    const auto target = static_cast<size_t>(count);
    if (target <= complete_) return;
    works_[target - 1].wait();
    const int64_t now = monotonic_ns();
    for (; complete_ < target; ++complete_) times_[complete_].end_ns = now;
  }
  void poll() override {
    while (complete_ < works_.size() && works_[complete_].poll())
      times_[complete_++].end_ns = monotonic_ns();
  }
  TimeSpan times(size_t i) const override { return times_[i]; }
  void restart() override {
    check(complete_ == works_.size(), "a step ended with {} collectives of {} complete", complete_,
          works_.size());
    works_.clear();
    times_.clear();
    complete_ = 0;
  }

 private:
  Communicator& comm_;
  std::vector<Work> works_;  // of this step
  std::vector<TimeSpan> times_;
  size_t complete_ = 0;
};

class ThreadedQueue : public CommQueue {
 public:
  ThreadedQueue(Communicator& comm, size_t most) : comm_(comm) {
    posted_.reserve(most);
    thread_ = std::thread([this] { drive(); });
  }
  ~ThreadedQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    to_thread_.notify_one();
    thread_.join();
  }

  void post(OpKind op, Tensor in, Tensor out) override {
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back({op, in, out, {}});
    }
    to_thread_.notify_one();
  }
  void wait(int32_t count) override {
    std::unique_lock lock(mutex_);
    from_thread_.wait(lock, [&] { return failure_ || complete_ >= static_cast<size_t>(count); });
    if (failure_) std::rethrow_exception(failure_);
  }
  void poll() override {}
  TimeSpan times(size_t i) const override { return posted_[i].times; }
  void restart() override {
    const std::lock_guard lock(mutex_);
    check(complete_ == posted_.size(), "a step ended with {} collectives of {} complete", complete_,
          posted_.size());
    posted_.clear();
    complete_ = 0;
  }

 private:
  struct Collective {
    OpKind op;
    Tensor in, out;
    TimeSpan times;
  };

  void drive() {
    std::unique_lock lock(mutex_);
    while (true) {
      to_thread_.wait(lock, [&] { return stopping_ || complete_ < posted_.size(); });
      if (stopping_) return;
      const Collective next = posted_[complete_];
      lock.unlock();
      const int64_t begin = monotonic_ns();
      std::exception_ptr failure;
      try {
        start(comm_, next.op, next.in, next.out).wait();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) {
        failure_ = failure;
        from_thread_.notify_one();
        return;
      }
      posted_[complete_++].times = {begin, monotonic_ns()};
      from_thread_.notify_one();
    }
  }

  Communicator& comm_;
  std::mutex mutex_;
  std::condition_variable to_thread_, from_thread_;
  std::vector<Collective> posted_;  // of this step
  size_t complete_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<CommQueue> make_comm_queue(Communicator& comm, size_t most, bool own_thread) {
  if (own_thread) return std::make_unique<ThreadedQueue>(comm, most);
  return std::make_unique<PolledQueue>(comm, most);
}

}  // namespace dstrain
