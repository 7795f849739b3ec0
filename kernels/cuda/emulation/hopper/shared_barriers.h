// Barriers in shared memory (mbarrier): phases that end when enough threads have arrived and all announced bytes are there.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace dstrain::emulated {

// The barriers of a block. A barrier is named by its word in shared memory, which holds a mark while it is a barrier. All
// functions throw InternalError for what the PTX ISA does not allow.
class SharedBarriers {
 public:
  void clear() { count_ = 0; }

  // Makes the word a barrier of so many arrivals, in its phase 0.
  void init(uint64_t* word, int arrivals);
  // Counts an arrival that announces bytes. Returns whether the phase has ended with it.
  bool arrive(uint64_t* word, uint32_t bytes);
  // Counts bytes that a copy has written. Returns whether the phase has ended with them.
  bool complete(uint64_t* word, uint32_t bytes);
  // Returns whether the phase of this parity that is the current one or the one before it has ended.
  bool passed(const uint64_t* word, int parity);
  // Returns whether bytes were ever announced to the barrier.
  bool has_bytes(const uint64_t* word);
  // Returns an address of the barrier for acquire and release.
  void* order_of(const uint64_t* word);
  // Returns what the barrier waits for, for messages.
  std::string describe(const uint64_t* word);

 private:
  static constexpr size_t kMost = 128;
  struct State {
    const uint64_t* word;
    int arrivals, pending;  // of a phase; that the current phase still lacks
    int64_t bytes;          // that are announced but not there
    unsigned phase;
    bool has_bytes;
    char order;
  };
  State& state_of(const uint64_t* word);
  static bool end_phase(State& state);

  std::array<State, kMost> states_;
  size_t count_ = 0;
};

}  // namespace dstrain::emulated
