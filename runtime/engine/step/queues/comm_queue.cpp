#include "runtime/engine/step/queues/comm_queue.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"
#include "runtime/engine/step/queues/start_collective.h"
#include "runtime/engine/step/queues/stream_queue.h"

namespace dstrain {
namespace {

// How long a queue with several channels sleeps at most before it looks at the others again.
constexpr std::chrono::microseconds kShortestNap{20}, kLongestNap{200};

std::chrono::microseconds nap_after(int earlier) {
  return std::min(kLongestNap, kShortestNap * (1 + earlier / 8));
}

void check_all_complete(size_t complete, size_t posted) {
  check(complete == posted, "a step ended with {} collectives of {} complete", complete, posted);
}

class PolledQueue : public CommQueue {
 public:
  PolledQueue(std::span<Communicator* const> channels, const Backend& backend,
              std::span<const size_t> most)
      : backend_(backend), channels_(channels.size()) {
    for (size_t i = 0; i < channels.size(); ++i) {
      channels_[i].comm = channels[i];
      channels_[i].works.reserve(most[i]);
      channels_[i].times.reserve(most[i]);
    }
  }

  void post(int channel, OpKind op, Tensor in, Tensor out, const RowCounts& rows) override {
    Channel& c = channels_[static_cast<size_t>(channel)];
    backend_.compute->synchronize();
    c.times.push_back({monotonic_ns(), 0});
    c.works.push_back(start_collective(*c.comm, op, in, out, rows));
  }
  void wait(int channel, int32_t count) override {
    Channel& c = channels_[static_cast<size_t>(channel)];
    const auto target = static_cast<size_t>(count);
    if (target <= c.complete) return;
    Work& work = c.works[target - 1];
    if (channels_.size() == 1)
      work.wait();
    else
      wait_among_others(c, work);
    const int64_t now = monotonic_ns();
    for (; c.complete < target; ++c.complete) c.times[c.complete].end_ns = now;
  }
  void poll() override {
    for (Channel& c : channels_) poll(c);
  }
  TimeSpan times(int channel, size_t i) const override {
    return channels_[static_cast<size_t>(channel)].times[i];
  }
  void restart() override {
    for (Channel& c : channels_) {
      check_all_complete(c.complete, c.works.size());
      c.works.clear();
      c.times.clear();
      c.complete = 0;
    }
  }

 private:
  struct Channel {
    Communicator* comm = nullptr;
    std::vector<Work> works{};  // of this step
    std::vector<TimeSpan> times{};
    size_t complete = 0;
  };

  // Returns whether a collective was found complete.
  static bool poll(Channel& c) {
    const size_t before = c.complete;
    while (c.complete < c.works.size() && c.works[c.complete].poll())
      c.times[c.complete++].end_ns = monotonic_ns();
    return c.complete > before;
  }
  void wait_among_others(const Channel& awaited, Work& work) {
    WaitState state;
    std::chrono::microseconds nap{0};
    while (!work.wait_step(state, nap)) {
      bool found = false;
      for (Channel& c : channels_)
        if (&c != &awaited) found = poll(c) || found;
      nap = found ? std::chrono::microseconds(0) : nap_after(state.sleeps);
    }
  }

  const Backend& backend_;
  std::vector<Channel> channels_;
};

class ThreadedQueue : public CommQueue {
 public:
  ThreadedQueue(std::span<Communicator* const> channels, const Backend& backend,
                std::span<const size_t> most)
      : backend_(backend), channels_(channels.size()) {
    size_t all = 0;
    for (size_t i = 0; i < channels.size(); ++i) {
      channels_[i].comm = channels[i];
      channels_[i].times.reserve(most[i]);
      all += most[i];
    }
    posted_.reserve(all);
    under_way_.reserve(all);
    for (size_t i = 0; i < all; ++i) ready_.push_back(backend.device->make_event());
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

  void post(int channel, OpKind op, Tensor in, Tensor out, const RowCounts& rows) override {
    {
      const std::lock_guard lock(mutex_);
      ready_[posted_.size()]->record(*backend_.compute);
      Channel& c = channels_[static_cast<size_t>(channel)];
      posted_.push_back({&c, c.times.size(), op, in, out, rows});
      c.times.emplace_back();
    }
    to_thread_.notify_one();
  }
  void wait(int channel, int32_t count) override {
    const Channel& c = channels_[static_cast<size_t>(channel)];
    std::unique_lock lock(mutex_);
    from_thread_.wait(lock, [&] { return failure_ || c.complete >= static_cast<size_t>(count); });
    if (failure_) std::rethrow_exception(failure_);
  }
  void poll() override {}
  TimeSpan times(int channel, size_t i) const override {
    return channels_[static_cast<size_t>(channel)].times[i];
  }
  void restart() override {
    const std::lock_guard lock(mutex_);
    for (Channel& c : channels_) check_all_complete(c.complete, c.times.size());
    posted_.clear();
    started_ = 0;
    for (Channel& c : channels_) {
      c.times.clear();
      c.complete = 0;
    }
  }

 private:
  struct Channel {
    Communicator* comm = nullptr;
    std::vector<TimeSpan> times{};  // of this step's collectives
    size_t complete = 0;
  };
  struct Collective {
    Channel* channel;
    size_t number;  // among those of its channel
    OpKind op;
    Tensor in, out;
    RowCounts rows;
  };
  struct UnderWay {
    Channel* channel;
    size_t number;
    int64_t begin_ns;
    Work work;
  };

  void drive() {
    backend_.device->attach_thread();
    try {
      while (wait_for_work()) {
        start_posted();
        if (channels_.size() == 1) under_way_.front().work.wait();
        serve();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      from_thread_.notify_one();
    }
  }
  // Sleeps until there is something to start; for a nap at most while collectives are under way. Returns false
  // if the thread is to end.
  bool wait_for_work() {
    std::unique_lock lock(mutex_);
    const auto posted = [&] { return stopping_ || started_ < posted_.size(); };
    if (under_way_.empty())
      to_thread_.wait(lock, posted);
    else if (idle_rounds_ >= kSpins)
      to_thread_.wait_for(lock, nap_after(idle_rounds_ - kSpins), posted);
    return !stopping_;
  }
  // Starts the next collective, if there is one.
  void start_posted() {
    std::unique_lock lock(mutex_);
    if (started_ == posted_.size()) return;
    const Collective next = posted_[started_];
    Event& ready = *ready_[started_++];
    lock.unlock();
    ready.synchronize();
    const int64_t begin = monotonic_ns();
    under_way_.push_back(
        {next.channel, next.number, begin,
         start_collective(*next.channel->comm, next.op, next.in, next.out, next.rows)});
    idle_rounds_ = 0;
    state_ = {};
  }
  // Makes progress on everything under way. The oldest one is waited for, with a deadline.
  void serve() {
    ++idle_rounds_;
    for (size_t i = 0; i < under_way_.size();) {
      UnderWay& u = under_way_[i];
      const bool complete =
          i == 0 ? u.work.wait_step(state_, std::chrono::microseconds(0)) : u.work.poll();
      if (!complete) {
        ++i;
        continue;
      }
      idle_rounds_ = 0;
      if (i == 0) state_ = {};
      {
        const std::lock_guard lock(mutex_);
        u.channel->times[u.number] = {u.begin_ns, monotonic_ns()};
        ++u.channel->complete;
      }
      from_thread_.notify_one();
      under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  static constexpr int kSpins = 64;  // rounds without a completion before the thread naps

  const Backend& backend_;
  std::vector<std::unique_ptr<Event>> ready_;  // of the i-th collective of a step
  std::mutex mutex_;
  std::condition_variable to_thread_, from_thread_;
  std::vector<Channel> channels_;
  std::vector<Collective> posted_;  // of this step
  size_t started_ = 0;              // of them
  bool stopping_ = false;
  std::exception_ptr failure_;
  // The thread's own.
  std::vector<UnderWay> under_way_;  // in start order
  WaitState state_;                  // of the wait for the oldest
  int idle_rounds_ = 0;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<CommQueue> make_comm_queue(std::span<Communicator* const> channels,
                                           const Backend& backend, std::span<const size_t> most,
                                           bool own_thread) {
  check(!channels.empty() && channels.size() == most.size(),
        "a queue of {} channels, {} of them sized", channels.size(), most.size());
  if (channels[0]->on_stream()) return make_stream_queue(channels, backend, most);
  if (own_thread) return std::make_unique<ThreadedQueue>(channels, backend, most);
  return std::make_unique<PolledQueue>(channels, backend, most);
}

}  // namespace dstrain
