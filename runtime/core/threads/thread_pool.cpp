#include "runtime/core/threads/thread_pool.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/futex.h"
#include "runtime/core/threads/run_delay.h"
#include "runtime/core/threads/without_signals.h"

namespace dstrain {
namespace {

using namespace std::chrono_literals;
// The states of a worker. Its thread sleeps where it found `idle` for too long; a caller reserves it, writes the part, and
// offers it; whoever makes `offered` into `taken` has the part, and the region cannot end before it is complete.
enum State : uint32_t { idle, asleep, reserved, offered, taken, ending };

constexpr uint32_t kCallerSleeps = 1U << 31;
constexpr size_t kMostOffers = 4096;
constexpr auto kSpin = 2ms;
// How long a thread that was kept waiting for a core gets no part: longer each time until it is not.
constexpr auto kShortestRest = 50ms;
constexpr auto kLongestRest = 800ms;
constexpr int kRestGrowth = 4;
constexpr auto kGrace = 200us;  // how long a part is left to a thread that must get a core first
constexpr auto kSleep = 1h;     // of a thread that is woken
constexpr auto kChange = 50us;  // of one that is not

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether a waiting thread is still to look rather than sleep.
class Spin {
 public:
  explicit Spin(const SpinLimit& limit) : limit_(limit) {}

  bool again() {
    if (limit_.time <= 0ns || looks_ >= limit_.looks) return false;
    // Reading the clock takes as long as some looks.
    if (looks_ % 32 == 0) {
      const auto now = Clock::now();
      if (looks_ == 0) begin_ = now;
      if (now - begin_ > limit_.time) return false;
    }
    ++looks_;
    pause();
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  SpinLimit limit_;
  Clock::time_point begin_;
  int64_t looks_ = 0;
};

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

bool is_word(std::string_view value, std::string_view word) {
  return std::equal(value.begin(), value.end(), word.begin(), word.end(),
                    [](char a, char b) { return (a | 0x20) == b; });
}

}  // namespace

SpinLimit spin_limit(int threads, int cores) {
  if (const std::string_view looks = variable("GOMP_SPINCOUNT"); !looks.empty()) {
    if (is_word(looks, "infinite") || is_word(looks, "infinity")) return {.time = kSleep};
    SpinLimit limit{.time = kSleep};
    const auto [stop, status] =
        std::from_chars(looks.data(), looks.data() + looks.size(), limit.looks);
    if (status == std::errc() && stop == looks.data() + looks.size() && limit.looks >= 0)
      return limit.looks > 0 ? limit : SpinLimit{};
  }
  const std::string_view policy = variable("OMP_WAIT_POLICY");
  if (is_word(policy, "active")) return {.time = kSleep};
  if (is_word(policy, "passive") || threads > cores) return {};
  return {.time = kSpin, .if_free = true};
}

ThreadPool::ThreadPool(int threads, SpinLimit limit)
    : limit_(limit), workers_(static_cast<size_t>(std::max(1, threads) - 1)) {
  const WithoutSignals without;
  try {
    for (size_t i = 0; i < workers_.size(); ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    for (size_t i = 0; i < threads_.size(); ++i) {
      workers_[i].state = ending;
      futex_wake(workers_[i].state, 1);
      threads_[i].join();
    }
    fail_run(
        "cannot start thread {} of {}: {}; raise the limit of processes (ulimit -u), or set "
        "OMP_NUM_THREADS to fewer",
        threads_.size() + 2, threads, error.code().message());
  }
}

ThreadPool::~ThreadPool() {
  for (Worker& worker : workers_) {
    worker.state = ending;
    futex_wake(worker.state, 1);
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(int64_t parts, Function function, const void* context) {
  if (parts <= 0) return;
  Region region{.run = function, .context = context, .parts = parts, .next{parts}};
  const auto now = limit_.if_free ? Clock::now() : Clock::time_point{};
  std::bitset<kMostOffers> offers;
  int64_t part = 1;
  for (size_t i = 0; i < workers_.size() && i < kMostOffers && part < parts; ++i)
    if (workers_[i].rests_until.load(std::memory_order_relaxed) <= now &&
        offer(workers_[i], region, part)) {
      offers.set(i);
      ++part;
    }
  region.next.store(part, std::memory_order_relaxed);
  run_part(region, 0);
  run_rest(region);
  // A thread that slept needs a while to get a core where they are shared, and the kernel gives each thread its share of
  // them: two that do half of the work each have more than one that does all.
  if (limit_.time <= 0ns && wait_for(region, kGrace)) return rethrow(region);
  for (size_t i = 0; i < workers_.size() && i < kMostOffers; ++i)
    if (offers.test(i)) take(workers_[i], false);
  while (!wait_for(region, kSleep)) {
  }
  rethrow(region);
}

void ThreadPool::rethrow(const Region& region) {
  if (region.failed) std::rethrow_exception(region.error);
}

// Offers a part to the worker's thread unless that one has one already. Wakes it if it sleeps.
bool ThreadPool::offer(Worker& worker, Region& region, int64_t part) const {
  uint32_t before = worker.state.load(std::memory_order_relaxed);
  if ((before != idle && before != asleep) ||
      !worker.state.compare_exchange_strong(before, reserved, std::memory_order_acquire))
    return false;
  worker.region = &region;
  worker.part = part;
  region.left.fetch_add(1, std::memory_order_relaxed);
  worker.state.store(offered, std::memory_order_release);
  if (before == asleep) futex_wake(worker.state, 1);
  return true;
}

// Takes the part that the worker offers, if it does, and runs it. It may be another region's than the one it was looked
// for. A part that another thread takes leaves the worker free at once.
bool ThreadPool::take(Worker& worker, bool is_own) {
  uint32_t expected = offered;
  if (worker.state.load(std::memory_order_relaxed) != offered ||
      !worker.state.compare_exchange_strong(expected, taken, std::memory_order_acquire))
    return false;
  Region& region = *worker.region;
  const int64_t part = worker.part;
  if (!is_own) worker.state.store(idle, std::memory_order_release);
  run_part(region, part);
  run_rest(region);
  if (is_own) worker.state.store(idle, std::memory_order_release);
  complete(region);
  return true;
}

void ThreadPool::run_part(Region& region, int64_t part) noexcept {
  try {
    region.run(region.context, part);
  } catch (...) {
    if (!region.failed.exchange(true)) region.error = std::current_exception();
  }
}

// Runs the parts that no thread was offered.
void ThreadPool::run_rest(Region& region) {
  for (int64_t part; (part = region.next++) < region.parts;) run_part(region, part);
}

// After the subtraction the region may be gone: the kernel alone uses its address.
void ThreadPool::complete(Region& region) {
  std::atomic<uint32_t>& left = region.left;
  if (left.fetch_sub(1, std::memory_order_acq_rel) == (kCallerSleeps | 1)) futex_wake(left, 1);
}

// Returns whether all parts that others have are complete; false if they are not after `most`.
bool ThreadPool::wait_for(Region& region, std::chrono::microseconds most) const {
  Spin spin(limit_);
  const auto end = Clock::now() + most;
  while (true) {
    uint32_t left = region.left.load(std::memory_order_acquire);
    if ((left & ~kCallerSleeps) == 0) return true;
    if (spin.again()) continue;
    const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(end - Clock::now());
    if (rest <= 0us) return false;
    if (left & kCallerSleeps ||
        region.left.compare_exchange_strong(left, left | kCallerSleeps, std::memory_order_acquire))
      futex_wait(region.left, left | kCallerSleeps, rest);
  }
}

void ThreadPool::work(size_t own) {
  Worker& worker = workers_[own];
  Spin spin(limit_);
  RunDelay delay;
  auto rest = kShortestRest;
  while (true) {
    if (take(worker, true)) {
      for (size_t next = own + 1; next < workers_.size() && take(workers_[next], false);) ++next;
      spin = Spin(limit_);
      if (!limit_.if_free || !delay.was_kept_waiting()) continue;
      const auto now = Clock::now();
      const bool again = now - worker.rests_until.load(std::memory_order_relaxed) < kLongestRest;
      rest = again ? std::min(kRestGrowth * rest, kLongestRest) : kShortestRest;
      worker.rests_until.store(now + rest, std::memory_order_relaxed);
      delay.leave_out();
      spin = Spin({});
      continue;
    }
    uint32_t state = worker.state.load(std::memory_order_acquire);
    if (state == ending) return;
    if (spin.again()) continue;
    if (state == asleep || (state == idle && worker.state.compare_exchange_strong(state, asleep)))
      futex_wait(worker.state, asleep, kSleep);
    else  // a caller or another thread is about to change it
      futex_wait(worker.state, state, kChange);
  }
}

}  // namespace dstrain
