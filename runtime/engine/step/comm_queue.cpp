#include "runtime/engine/step/comm_queue.h"

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
  PolledQueue(Communicator& comm, const Backend& backend, size_t most)
      : comm_(comm), backend_(backend) {
    works_.reserve(most);
    times_.reserve(most);
  }

  void post(OpKind op, Tensor in, Tensor out) override {
    backend_.compute->synchronize();
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
  const Backend& backend_;
  std::vector<Work> works_;  // of this step
  std::vector<TimeSpan> times_;
  size_t complete_ = 0;
};

class ThreadedQueue : public CommQueue {
 public:
  ThreadedQueue(Communicator& comm, const Backend& backend, size_t most)
      : comm_(comm), backend_(backend) {
    posted_.reserve(most);
    for (size_t i = 0; i < most; ++i) ready_.push_back(backend.device->make_event());
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
      ready_[posted_.size()]->record(*backend_.compute);
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
    backend_.device->attach_thread();
    std::unique_lock lock(mutex_);
    while (true) {
      to_thread_.wait(lock, [&] { return stopping_ || complete_ < posted_.size(); });
      if (stopping_) return;
      const Collective next = posted_[complete_];
      Event& ready = *ready_[complete_];
      lock.unlock();
      int64_t begin = 0;
      std::exception_ptr failure;
      try {
        ready.synchronize();
        begin = monotonic_ns();
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
  const Backend& backend_;
  std::vector<std::unique_ptr<Event>> ready_;  // of the i-th collective of a step
  std::mutex mutex_;
  std::condition_variable to_thread_, from_thread_;
  std::vector<Collective> posted_;  // of this step
  size_t complete_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

// Collectives run on a stream beside the compute stream; the host waits for neither.
class StreamQueue : public CommQueue {
 public:
  StreamQueue(StreamCollectives& comm, const Backend& backend, size_t most)
      : comm_(comm), backend_(backend), stream_(backend.device->make_stream()) {
    for (size_t i = 0; i < most; ++i) {
      ready_.push_back(backend.device->make_event());
      done_.push_back(backend.device->make_event());
    }
    posted_at_.reserve(most);
  }

  void post(OpKind op, Tensor in, Tensor out) override {
    const size_t i = posted_at_.size();
    posted_at_.push_back(monotonic_ns());
    ready_[i]->record(*backend_.compute);
    stream_->wait(*ready_[i]);
    switch (op) {
      case OpKind::all_reduce:
        comm_.all_reduce(in, *stream_);
        break;
      case OpKind::reduce_scatter:
        comm_.reduce_scatter(in, out, *stream_);
        break;
      case OpKind::all_gather:
        comm_.all_gather(in, out, *stream_);
        break;
      default:
        throw InternalError(fmt::format("{} is no collective", name_of(op)));
    }
    done_[i]->record(*stream_);
  }
  void wait(int32_t count) override {
    const auto target = static_cast<size_t>(count);
    if (target <= waited_) return;
    backend_.compute->wait(*done_[target - 1]);
    waited_ = target;
  }
  void poll() override {}
  // The host knows only when they were posted.
  TimeSpan times(size_t i) const override { return {posted_at_[i], posted_at_[i]}; }
  void restart() override {
    comm_.check_failure();
    posted_at_.clear();
    waited_ = 0;
  }

 private:
  StreamCollectives& comm_;
  const Backend& backend_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Event>> ready_, done_;  // of the i-th collective of a step
  std::vector<int64_t> posted_at_;
  size_t waited_ = 0;
};

}  // namespace

std::unique_ptr<CommQueue> make_comm_queue(Communicator& comm, const Backend& backend, size_t most,
                                           bool own_thread) {
  if (auto* on_stream = comm.on_stream())
    return std::make_unique<StreamQueue>(*on_stream, backend, most);
  if (own_thread) return std::make_unique<ThreadedQueue>(comm, backend, most);
  return std::make_unique<PolledQueue>(comm, backend, most);
}

}  // namespace dstrain
