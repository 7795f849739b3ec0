#include "kernels/cuda/emulation/hopper/shared_barriers.h"

#include "runtime/core/error.h"

namespace dstrain::emulated {
namespace {

constexpr uint64_t kBarrierMark = 0x6d62617272696572;
constexpr int kMostArrivals = (1 << 20) - 1;
constexpr int64_t kMostBytes = (1 << 20) - 1;

}  // namespace

void SharedBarriers::init(uint64_t* word, int arrivals) {
  check(reinterpret_cast<uintptr_t>(word) % 8 == 0,
        "a barrier at an address that is not a multiple of 8");
  check(arrivals >= 1 && arrivals <= kMostArrivals, "a barrier of {} arrivals, expected 1 to {}",
        arrivals, kMostArrivals);
  for (size_t i = 0; i < count_; ++i)
    check(states_[i].word != word, "a barrier is initialised again while it is one");
  check(count_ < kMost, "more than {} barriers in shared memory", kMost);
  *word = kBarrierMark;
  states_[count_++] = {word, arrivals, arrivals, 0, 0, false, 0};
}

SharedBarriers::State& SharedBarriers::state_of(const uint64_t* word) {
  for (size_t i = 0; i < count_; ++i) {
    if (states_[i].word != word) continue;
    check(*word == kBarrierMark, "a barrier's memory was overwritten");
    return states_[i];
  }
  throw InternalError("a barrier is used before it is initialised");
}

bool SharedBarriers::end_phase(State& state) {
  if (state.pending > 0 || state.bytes != 0) return false;
  ++state.phase;
  state.pending = state.arrivals;
  return true;
}

bool SharedBarriers::arrive(uint64_t* word, uint32_t bytes) {
  State& state = state_of(word);
  check(state.pending > 0, "more than {} threads arrive at a barrier in one phase", state.arrivals);
  state.bytes += bytes;
  check(state.bytes <= kMostBytes, "{} bytes are announced to a barrier, expected at most {}",
        state.bytes, kMostBytes);
  state.has_bytes = state.has_bytes || bytes > 0;
  --state.pending;
  return end_phase(state);
}

bool SharedBarriers::complete(uint64_t* word, uint32_t bytes) {
  State& state = state_of(word);
  state.bytes -= bytes;
  check(state.bytes >= 0, "a copy writes {} bytes more than were announced to its barrier",
        -state.bytes);
  return end_phase(state);
}

bool SharedBarriers::passed(const uint64_t* word, int parity) {
  return static_cast<int>(state_of(word).phase & 1) != (parity & 1);
}

bool SharedBarriers::has_bytes(const uint64_t* word) {
  return state_of(word).has_bytes;
}

void* SharedBarriers::order_of(const uint64_t* word) {
  return &state_of(word).order;
}

std::string SharedBarriers::describe(const uint64_t* word) {
  const State& state = state_of(word);
  return fmt::format("a barrier in phase {} that lacks {} of {} arrivals and {} bytes", state.phase,
                     state.pending, state.arrivals, state.bytes);
}

}  // namespace dstrain::emulated
