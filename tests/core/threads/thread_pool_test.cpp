#include "runtime/core/threads/thread_pool.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/core/threads/parts.h"
#include "tests/support/without_variable.h"

namespace dstrain {
namespace {

using namespace std::chrono_literals;

template <class Run>
void run_on(ThreadPool& pool, int64_t parts, const Run& run) {
  pool.run(
      parts, [](const void* context, int64_t part) { (*static_cast<const Run*>(context))(part); },
      &run);
}

// Runs regions of many sizes and checks that each part ran once.
void check_parts(ThreadPool& pool, int regions) {
  for (int i = 0; i < regions; ++i) {
    const int64_t parts = i % 11;
    std::vector<int> times(static_cast<size_t>(parts));
    run_on(pool, parts, [&](int64_t part) { ++times[static_cast<size_t>(part)]; });
    for (const int n : times) REQUIRE(n == 1);
  }
}

TEST_CASE("each part of a computation runs once, whatever the threads, and however they wait") {
  for (const int threads : {1, 2, 3, 8})
    for (const SpinLimit limit :
         {SpinLimit{}, SpinLimit{.time = 20us}, SpinLimit{.time = 1s, .looks = 100}}) {
      ThreadPool pool(threads, limit);
      check_parts(pool, 500);
      std::this_thread::sleep_for(1ms);  // the threads sleep
      check_parts(pool, 100);
    }
}

TEST_CASE("threads that compute at the same time share a pool") {
  ThreadPool pool(4, {.time = 20us});
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) run_on(pool, 5, [&](int64_t part) { sum += part; });
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(sum == int64_t{3} * 2000 * 10);
}

TEST_CASE("a part may be divided itself") {
  ThreadPool pool(3, {.time = 20us});
  std::atomic<int> leaves{0};
  run_on(pool, 4, [&](int64_t) { run_on(pool, 4, [&](int64_t) { ++leaves; }); });
  CHECK(leaves == 16);
}

TEST_CASE("a part that throws ends the computation with its exception, after all others") {
  ThreadPool pool(3, {});
  for (int64_t bad = 0; bad < 5; ++bad) {
    std::atomic<int> others{0};
    CHECK_THROWS_WITH(run_on(pool, 5,
                             [&](int64_t part) {
                               if (part == bad) throw std::runtime_error("part");
                               ++others;
                             }),
                      "part");
    CHECK(others == 4);
  }
  check_parts(pool, 20);
}

// The other threads of the pool cannot run: this thread holds the only part that they have begun.
TEST_CASE("a computation does not wait for threads that do not come") {
  ThreadPool pool(3, {});
  std::mutex mutex;
  std::atomic<int> held{0};
  std::unique_lock lock(mutex);
  std::thread other([&] {
    run_on(pool, 3, [&](int64_t) {
      ++held;
      const std::lock_guard wait(mutex);
    });
  });
  while (held < 3)
    std::this_thread::yield();  // both threads of the pool are busy until the lock is free
  std::set<std::thread::id> ran;
  run_on(pool, 3, [&](int64_t) { ran.insert(std::this_thread::get_id()); });
  CHECK(ran == std::set{std::this_thread::get_id()});
  lock.unlock();
  other.join();
}

// Both threads have one core: while one computes the other waits for it.
TEST_CASE("a thread that is kept waiting for its core gets few parts") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof one, &one);
    ThreadPool pool(2, {.time = 2ms, .if_free = true});
    const auto me = std::this_thread::get_id();
    std::atomic<int64_t> mine{0}, others{0};
    const auto compute_for = [&](std::chrono::milliseconds time) {
      mine = others = 0;
      for (const auto end = std::chrono::steady_clock::now() + time;
           std::chrono::steady_clock::now() < end;)
        run_on(pool, 2, [&](int64_t) {
          ++(std::this_thread::get_id() == me ? mine : others);
          for (const auto done = std::chrono::steady_clock::now() + 50us;
               std::chrono::steady_clock::now() < done;) {
          }
        });
    };
    compute_for(300ms);  // in which it is found out
    compute_for(500ms);
    ::_exit(10 * others < mine ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("threads that wait for long use no processor") {
  ThreadPool pool(3, spin_limit(2, 2));
  check_parts(pool, 20);
  const auto used = [] {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  const auto before = used();
  std::this_thread::sleep_for(100ms);
  CHECK(used() - before < 20ms);
}

TEST_CASE("a user's own OMP_WAIT_POLICY and GOMP_SPINCOUNT say how threads wait") {
  const WithoutVariable policy("OMP_WAIT_POLICY"), count("GOMP_SPINCOUNT");
  const auto with = [](const char* name, const char* value) {
    ::setenv(name, value, 1);
    const SpinLimit limit = spin_limit(2, 2);
    ::unsetenv(name);
    return limit;
  };
  CHECK(spin_limit(2, 2).time > 0s);
  CHECK(spin_limit(2, 2).time < 5ms);
  CHECK(spin_limit(2, 2).if_free);
  CHECK(spin_limit(3, 2).time == 0s);
  CHECK(with("OMP_WAIT_POLICY", "passive").time == 0s);
  CHECK(with("OMP_WAIT_POLICY", "PASSIVE").time == 0s);
  CHECK(with("OMP_WAIT_POLICY", "active").time > 1s);
  CHECK(with("GOMP_SPINCOUNT", "1000").looks == 1000);
  CHECK(with("GOMP_SPINCOUNT", "0").time == 0s);
  CHECK(with("GOMP_SPINCOUNT", "infinity").time > 1s);
  CHECK(with("GOMP_SPINCOUNT", "many").time == spin_limit(2, 2).time);
}

#if !defined(__SANITIZE_THREAD__)  // which does not let a fork of several threads start one
TEST_CASE("a fork computes with threads of its own") {
  set_thread_count(3);
  int64_t sums[3] = {};
  run_parts(3, [&](int64_t part) { sums[part] = part; });
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::atomic<int> others{0};
    const auto me = std::this_thread::get_id();
    // Until another thread has had a part: they are started in the fork too.
    for (int i = 0; i < 100000 && others == 0; ++i)
      run_parts(3, [&](int64_t) {
        if (std::this_thread::get_id() != me) ++others;
        std::this_thread::sleep_for(10us);
      });
    ::_exit(others > 0 && thread_count() == 3 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  set_thread_count(1);
}
#endif

TEST_CASE("threads have the cores of the process that set their number") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    set_thread_count(3);
    run_parts(3, [](int64_t) {});
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof one, &one);
    set_thread_count(3);
    std::atomic<int> elsewhere{0};
    for (int i = 0; i < 200; ++i)
      run_parts(3, [&](int64_t) {
        cpu_set_t mine;
        ::sched_getaffinity(0, sizeof mine, &mine);
        if (!CPU_EQUAL(&mine, &one)) ++elsewhere;
      });
    ::_exit(elsewhere == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("ranges and turns cover all of a length once") {
  set_thread_count(3);
  for (const int64_t n : {0, 1, 2, 7, 100}) {
    std::vector<std::atomic<int>> times(static_cast<size_t>(n));
    run_ranges(4, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++times[static_cast<size_t>(i)];
    });
    run_in_turns(4, n, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
    for (const auto& t : times) CHECK(t == 2);
  }
  set_thread_count(1);
}

}  // namespace
}  // namespace dstrain
