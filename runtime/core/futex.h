// Futexes: threads of several processes wait on a word of shared memory (Linux).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace dstrain {

// Waits while `word` is `expected`, until a wake-up or for `most`. May return spuriously.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::microseconds most);

// Wakes up to `waiters` threads that wait on `word`.
void futex_wake(std::atomic<uint32_t>& word, int waiters);

}  // namespace dstrain
