// Futex: sleeping on a word of memory that processes share. Stands on Linux.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace dstrain {

// Sleeps while `word` is `expected`, until it is woken, at most `most`; may also return for no reason.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::microseconds most);

// Wakes up to `sleepers` that sleep on `word`.
void futex_wake(std::atomic<uint32_t>& word, int sleepers);

}  // namespace dstrain
