// Computations that are divided among the threads of this process. Parts are numbered, and what a part computes must
// not depend on the thread that has it, which can be any (thread_pool.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/core/threads/thread_pool.h"

namespace dstrain {

// Returns how many threads this process computes with: what set_thread_count said, else OMP_NUM_THREADS, else the cores
// that it may use.
int thread_count();

// Sets how many threads this process computes with. Threads that there are end; those that the next computation starts
// have the affinity of the thread that calls it. No computation may be under way.
void set_thread_count(int threads);

// Returns the threads of this process, which it starts at the first call, in a forked process too.
ThreadPool& threads_of_process();

// Calls run(part) once for each part of [0, parts) and returns when all are complete. Part 0 is this thread's. If a part
// throws, one of the exceptions is thrown again at the end.
template <class Run>
void run_parts(int64_t parts, const Run& run) {
  if (parts == 1) return run(int64_t{0});
  if (parts > 1)
    threads_of_process().run(
        parts, [](const void* context, int64_t part) { (*static_cast<const Run*>(context))(part); },
        &run);
}

// Calls run(begin, end) for at most `parts` contiguous ranges of nearly equal length that cover [0, n).
template <class Run>
void run_ranges(int64_t parts, int64_t n, const Run& run) {
  const int64_t used = std::min(parts, n);
  run_parts(used, [&](int64_t part) { run(n * part / used, n * (part + 1) / used); });
}

// Calls run(i) for each i of [0, n). Each of `threads` parts takes the next one when it has finished one: for work whose
// pieces take different times.
template <class Run>
void run_in_turns(int64_t threads, int64_t n, const Run& run) {
  std::atomic<int64_t> next{0};
  run_parts(std::min(threads, n), [&](int64_t) {
    for (int64_t i = next++; i < n; i = next++) run(i);
  });
}

// Calls run(part, list, item) once for each item [0, items(list)) of each of `lists` lists. Part p takes those of list p, in
// order, and then those that other parts have not begun: so cores whose speeds differ, as those of virtual machines that
// share them do, end at about the same time. Items should take about a millisecond.
template <class Items, class Run>
void run_lists(int64_t lists, const Items& items, const Run& run) {
  struct alignas(64) List {
    std::atomic<int64_t> begun{0};
  };
  constexpr int64_t kMostShared = 128;  // with more lists each part has its own alone
  std::array<List, kMostShared> state;
  run_parts(lists, [&](int64_t part) {
    if (lists > kMostShared) {
      for (int64_t item = 0; item < items(part); ++item) run(part, part, item);
      return;
    }
    for (int64_t i = 0; i < lists; ++i) {
      const int64_t list = (part + i) % lists, end = items(list);
      std::atomic<int64_t>& begun = state[static_cast<size_t>(list)].begun;
      for (int64_t item = begun++; item < end; item = begun++) run(part, list, item);
    }
  });
}

}  // namespace dstrain
