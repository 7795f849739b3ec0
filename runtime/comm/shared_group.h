// SharedGroup: the ranks of one machine, joined by shared memory. Each rank owns one segment (a memfd
// which the peers map): a control block (a count of arrivals, a doorbell, flags, postings) and a
// bounce buffer. All synchronisation is one growing count per rank: "rank r has arrived n times".
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/mpi_session.h"
#include "runtime/comm/ordered.h"
#include "runtime/comm/peer_process.h"
#include "runtime/core/memory.h"

namespace dstrain {

inline constexpr int kMaxRanks = 256;  // on one machine; the processes of a larger world use MPI

// Where a rank's tensor lies.
struct Place {
  static constexpr int64_t kNothing = -1;  // this rank has nothing that others read
  static constexpr int64_t kStaged = -2;   // in its bounce buffer
  int64_t region = kNothing;               // else the index of an allocation
  int64_t offset = 0;                      // bytes from the allocation's start
};

// What a rank tells its peers about the operation it has reached.
struct Posting {
  OpKey key;
  Place place;
  std::array<double, kMaxValueBytes / sizeof(double)> values{};
};

struct alignas(64) ControlBlock {
  alignas(64) std::atomic<uint64_t> token{0};
  alignas(64) std::atomic<uint64_t> arrived{0};
  alignas(64) std::atomic<uint32_t> doorbell{0};
  std::atomic<uint32_t> sleeping{0};
  alignas(64) std::atomic<int32_t> first_abort{
      0};  // in rank 0's block: rank + 1 of the first to abort
  std::array<char, 1000> abort_reason{};
  // Two, used in turn: a rank writes the next one while a peer may still read the last.
  alignas(64) std::array<Posting, 2> postings{};
};

class SharedGroup {
 public:
  static constexpr int64_t kBounceBytes = int64_t{1} << 20;

  // Collective. Where any rank cannot map a peer, every rank gets nullptr and `why` says the first
  // reason known to this rank.
  static std::unique_ptr<SharedGroup> open(MpiSession& mpi, std::string& why);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(blocks_.size()); }

  Posting& posting(int64_t sequence) { return block(rank_).postings[sequence & 1]; }
  const Posting& posting(int r, int64_t sequence) { return block(r).postings[sequence & 1]; }
  std::byte* bounce(int r) const { return bounces_[static_cast<size_t>(r)]; }

  // Counts one more arrival of this rank, publishing all it wrote before; wakes sleepers.
  void arrive();
  // Whether every rank has arrived as often as this one. What they wrote before is then visible.
  bool all_here() { return lagging_rank() < 0; }
  int lagging_rank();
  // Sleeps until all are here, an abort, or a tenth of a second.
  void sleep();

  const PeerProcess& process(int r) const { return processes_[static_cast<size_t>(r)]; }

  void raise_abort(const std::string& reason);
  // Rank of the first abort, or -1.
  int aborting_rank();
  std::string abort_reason(int r);

 private:
  SharedGroup() = default;
  ControlBlock& block(int r) { return *blocks_[static_cast<size_t>(r)]; }
  void ring(int r);

  int rank_ = 0;
  uint64_t arrivals_ = 0;
  Memory own_;
  std::vector<Memory> mapped_;
  std::vector<ControlBlock*> blocks_;
  std::vector<std::byte*> bounces_;
  std::vector<PeerProcess> processes_;
};

}  // namespace dstrain
