// SharedGroup: the ranks of one machine, joined by shared memory and numbered from 0. Each rank owns one
// segment (a memfd that the others map) with a control block and a bounce buffer. All synchronization is
// one growing count per rank: "rank i has arrived n times". A rank that sleeps until others arrive does so
// on its doorbell, a futex word that they ring.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/operation.h"
#include "runtime/comm/rendezvous/peers.h"
#include "runtime/comm/rendezvous/rendezvous.h"
#include "runtime/core/memory.h"

namespace dstrain {

// The most ranks of one machine that share memory; with more, all ranks use messages.
inline constexpr int kMaxRanks = 256;

// Where a rank's tensor lies.
struct TensorPlace {
  static constexpr int64_t kNothing = -1;  // the rank has nothing that others read
  static constexpr int64_t kStaged = -2;   // in its bounce buffer
  int64_t region = kNothing;               // one of these, or the index of an allocation
  int64_t offset = 0;                      // bytes from the allocation's start
};

// What a rank tells the others of its machine about the operation that it has reached.
struct Posting {
  OpKey key;
  TensorPlace place;
  std::array<double, kMaxValueBytes / sizeof(double)> values{};
};

// The part of a rank's segment that synchronizes it with the others.
struct alignas(64) ControlBlock {
  alignas(64) std::atomic<uint64_t> token{0};
  alignas(64) std::atomic<uint64_t> arrived{0};
  alignas(64) std::atomic<uint32_t> doorbell{0};
  std::atomic<uint32_t> sleeping{0};
  // In the first block: 1 + the index of the rank that raised the first abort. The abort itself is in that
  // rank's block.
  alignas(64) std::atomic<int32_t> first_abort{0};
  int32_t abort_rank = 0;
  std::array<char, 1000> abort_reason{};
  // The rank of another machine that this one waits for, or -1.
  std::atomic<int32_t> waits_for{-1};
  // Used in turn: a rank writes the next one while a peer may still read the last.
  alignas(64) std::array<Posting, 2> postings{};
};

class SharedGroup {
 public:
  static constexpr int64_t kBounceBytes = int64_t{1} << 20;

  // Collective over all of `ranks`. Joins those of this rank's host, each with a bounce buffer of
  // `bounce_bytes`. If any rank cannot map a peer's segment, every rank gets nullptr, and `why` is the
  // first reason that this rank knows.
  static std::unique_ptr<SharedGroup> open(Rendezvous& ranks, const Peers& peers,
                                           int64_t bounce_bytes, std::string& why);

  int index() const { return index_; }
  int size() const { return static_cast<int>(blocks_.size()); }
  // Returns the rank of the communicator that is the `i`-th of this machine.
  int rank_of(int i) const { return ranks_[static_cast<size_t>(i)]; }

  Posting& posting(int64_t sequence) { return block(index_).postings[sequence & 1]; }
  const Posting& posting(int i, int64_t sequence) { return block(i).postings[sequence & 1]; }
  std::byte* bounce(int i) const { return bounces_[static_cast<size_t>(i)]; }
  int64_t bounce_bytes() const { return bounce_bytes_; }

  // Counts one more arrival of this rank and publishes all that it wrote before. Wakes the ranks that
  // waited for it alone.
  void arrive();
  // The same, but wakes only rank `i`.
  void arrive_at(int i);
  // Until its next arrival, this rank waits for the others to arrive once more than it has.
  void await_others() { awaited_ = arrivals_ + 1; }
  // Returns whether every rank has arrived as often as this one (once more, after await_others()). What
  // they wrote before is then visible.
  bool all_here() { return lagging() < 0; }
  // Returns the first rank, from the `from`-th on, that has not, or -1.
  int lagging(int from = 0);
  // Sleeps until all_here(), an abort, or for `most`.
  void sleep(std::chrono::microseconds most);

  // The rank of another machine that a rank of this one waits for; -1: none.
  void set_waits_for(int rank) { block(index_).waits_for.store(rank, std::memory_order_relaxed); }
  int waits_for(int i) { return block(i).waits_for.load(std::memory_order_relaxed); }

  // Raises the group's abort flag and wakes all sleepers. The first abort of the group stands. `rank`: of
  // the world, the one that asks for it. Each rank may call it once at most.
  void raise_abort(int rank, const std::string& reason);
  bool aborted() { return block(0).first_abort.load(std::memory_order_seq_cst) != 0; }
  std::optional<Abort> raised_abort();

 private:
  SharedGroup() = default;
  ControlBlock& block(int i) { return *blocks_[static_cast<size_t>(i)]; }
  bool is_here(int i) {
    return i == index_ || block(i).arrived.load(std::memory_order_seq_cst) >= awaited_;
  }
  void count_arrival();
  void ring(int i);
  void ring_sleeper(int i);

  int index_ = 0;
  int64_t bounce_bytes_ = 0;
  uint64_t arrivals_ = 0;
  uint64_t awaited_ = 0;  // arrivals of the others
  std::vector<int> ranks_;
  Memory own_;
  std::vector<Memory> mapped_;
  std::vector<ControlBlock*> blocks_;
  std::vector<std::byte*> bounces_;
};

}  // namespace dstrain
