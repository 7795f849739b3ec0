// Threads that share the parts of a computation with the thread that calls.
//
// A computation waits only for parts that have begun. No part needs a certain thread: each is offered to one, and while
// that one does not run the caller or another thread takes the part. What remains on a machine that others use too is a
// thread that loses its core within a part, for some milliseconds, while parts take microseconds. So a thread that was
// kept waiting for a core gets no part for a while: then the others, of which one may be the caller alone, do them all.
// A thread that waits looks for its part for a short time, because a thread that sleeps comes later, and then sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace dstrain {

// How long a waiting thread looks before it sleeps.
struct SpinLimit {
  std::chrono::nanoseconds time{};  // 0: it sleeps at once
  int64_t looks = INT64_MAX;        // and at most so often
  bool if_free =
      false;  // and a thread that does not have its core for itself gets no part for a while
};

// Returns the limit that the environment asks for by OpenMP's OMP_WAIT_POLICY or GNU's GOMP_SPINCOUNT, which programs
// of OpenMP are tuned by; else a short time, or none where `threads` are more than `cores`.
SpinLimit spin_limit(int threads, int cores);

// A fixed number of threads. Several threads may call run() at the same time; they share the pool's.
class ThreadPool {
 public:
  using Function = void (*)(const void* context, int64_t part);

  // Starts threads - 1 threads: the caller of run() is one too. Throws RunError if the system refuses one.
  ThreadPool(int threads, SpinLimit limit);
  // Ends the threads. No run() may be under way.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls function(context, part) once for each part of [0, parts), part 0 on this thread, and returns when all are
  // complete. Part i is offered to thread i while no thread is left out. Throws what a part has thrown, at the end.
  void run(int64_t parts, Function function, const void* context);

 private:
  using Clock = std::chrono::steady_clock;

  // One call of run().
  struct Region {
    Function run = nullptr;
    const void* context = nullptr;
    int64_t parts = 0;
    std::atomic<int64_t> next{0};   // the first part that neither was offered nor has begun
    std::atomic<uint32_t> left{0};  // parts that others have not completed; kCallerSleeps
    std::atomic<bool> failed{false};
    std::exception_ptr error{};  // of the part that set `failed`
  };
  // What is offered to one thread. On a cache line of its own.
  struct alignas(64) Worker {
    std::atomic<uint32_t> state{0};
    Region* region = nullptr;
    int64_t part = 0;
    std::atomic<Clock::time_point> rests_until{
        Clock::time_point{}};  // its thread gets no part before
  };

  void work(size_t own);
  bool offer(Worker& worker, Region& region, int64_t part) const;
  static bool take(Worker& worker, bool is_own);
  static void run_part(Region& region, int64_t part) noexcept;
  static void run_rest(Region& region);
  static void complete(Region& region);
  bool wait_for(Region& region, std::chrono::microseconds most) const;
  static void rethrow(const Region& region);

  const SpinLimit limit_;
  std::vector<Worker> workers_;  // one for each thread but the caller
  std::vector<std::thread> threads_;
};

}  // namespace dstrain
