// Communicator: the collectives that a plan uses, over the ranks of one group. Ranks are added in rank
// order in fp32 and the sum is rounded once to the tensor's dtype, for all-reduce and reduce-scatter
// alike, so a sum never depends on bucket size, stage or transport. When Work::wait() returns, the
// operation is complete on this rank and no peer still reads this rank's source. A wait that reaches its
// deadline throws PeerError (a RunError), which names the rank that was waited for; after abort() every
// wait throws it at once.
// One thread at a time may use a communicator; only abort() and abort_reason() may be called from any other thread.
// The communicator of all ranks of a run is the world. split() makes communicators of some of the ranks,
// its parts. Errors, and the slot, name ranks by their numbers in the world; a part's arguments and results
// (roots, slices) are numbered in the part.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/row_counts.h"
#include "runtime/core/memory.h"
#include "runtime/core/tensor.h"

namespace dstrain {

class Communicator;
class RankBoard;
struct RankSlot;
class Stream;

// Collectives that run in a device stream, in order with the kernels there. Later work in the stream waits for
// them; the host does not.
class StreamCollectives {
 public:
  virtual ~StreamCollectives() = default;
  virtual void all_reduce(Tensor inout, Stream& stream) = 0;
  virtual void reduce_scatter(Tensor in, Tensor out, Stream& stream) = 0;
  virtual void all_gather(Tensor in, Tensor out, Stream& stream) = 0;
  virtual void all_to_all(Tensor in, Tensor out, Stream& stream) = 0;
  // Throws InternalError: the counts are known to the device alone.
  virtual void exchange_rows(Tensor in, Tensor out, RowCounts counts, Stream& stream) = 0;
  virtual void send(Tensor in, Stream& stream) = 0;
  virtual void recv(Tensor out, Stream& stream) = 0;
  // Collectives that are captured from a stream have not run yet. Returns the payload bytes (wire_bytes()) of those
  // captured since the last call.
  virtual int64_t take_captured_bytes() = 0;
  // Must be called after each launch, in `stream`, of a graph with captured collectives of `bytes` in all: counts
  // them, and watches that the graph ends within the deadline.
  virtual void replayed(int64_t bytes, Stream& stream) = 0;
  // Throws RunError if one of them was abandoned. The caller must have synchronized its stream.
  virtual void check_failure() = 0;
  // Abandons those under way, so that their streams end. Called when this rank has failed. Never blocks.
  virtual void abandon() = 0;
};

// The state of a wait that is made of steps (Work::wait_step), from one step to the next.
struct WaitState {
  bool idle = false;  // the step before made no progress
  std::chrono::steady_clock::time_point idle_since{}, last_check{};
  int sleeps = 0;
};

// A handle on an operation that was started, to poll it or to wait for it. Handles can be copied and dropped.
// Without a handle the operation still completes, while a later one is polled or waited for. The tensors must
// live until the operation is complete, the communicator longer than its handles.
class Work {
 public:
  Work() = default;  // complete from the start
  Work(Communicator* comm, int64_t sequence) : comm_(comm), sequence_(sequence) {}
  // Makes progress without blocking; returns whether the operation is complete. A rank with one core has
  // no thread for communication: it polls between instructions.
  bool poll();
  // Blocks until the operation is complete.
  void wait();
  // One step of a wait, for a rank that serves several communicators while it waits for one: makes
  // progress, or spins for a moment, or sleeps for `longest` at most. Returns whether the operation is
  // complete. Throws what wait() would throw. `state` is new for every wait.
  bool wait_step(WaitState& state, std::chrono::microseconds longest);

 private:
  Communicator* comm_ = nullptr;
  int64_t sequence_ = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective over all ranks of this communicator. Returns a communicator of `ranks`: numbers in this one,
  // ascending, this rank among them; throws RunError on every rank unless the lists of any two ranks are
  // equal or disjoint. It numbers its ranks in the order of the list and has an order of its own, so that
  // its operations may be under way together with those of this communicator and of its other parts,
  // another one of the same ranks included. Another thread may use it. A tensor inside memory from
  // allocate() of the world travels without a copy.
  // An abort of the world or of any part stops all of them. The deadline, the threads and the slot are the
  // world's: setting them on a part sets them for all. The caller must have waited for a part's operations
  // before it destroys the part, which does not meet the peers then, and must destroy it before this one.
  virtual std::unique_ptr<Communicator> split(std::span<const int> ranks) = 0;

  // Collective. Returns memory that the peers can read and write directly: tensors inside it travel
  // without a copy, others through staging buffers. It is shared while both the returned Memory and this
  // communicator exist. The sizes may differ from rank to rank. Throws RunError naming `what` if the
  // system refuses the memory. A part of several ranks has none: all its memory is the world's.
  virtual Memory allocate(int64_t bytes, const std::string& what) = 0;

  // Each starts an operation. Operations of one communicator complete in the order they were started,
  // which must be the same on every rank: kind, element count and dtype are compared, and a
  // difference throws RunError on every rank. `out` of a scatter and `in` of a gather are this rank's
  // slice, elements [rank*n, (rank+1)*n) of a whole of n*size elements. A slice may lie in that very
  // place of the whole, and must not overlap it elsewhere. Sums exist for f32, bf16, f16 (added in fp32),
  // f64 and i32 (added as they are); gather and broadcast take every dtype.
  virtual Work all_reduce(Tensor inout) = 0;
  virtual Work reduce_scatter(Tensor in, Tensor out) = 0;
  virtual Work all_gather(Tensor in, Tensor out) = 0;
  virtual Work broadcast(Tensor inout, int root) = 0;
  // `in` and `out` are one equal slice per rank each: slice s of rank r's `in` becomes slice r of rank s's
  // `out`. They must not overlap. Takes every dtype.
  virtual Work all_to_all(Tensor in, Tensor out) = 0;
  // Rows of `in` (rows, columns) come to other ranks, as many as `counts` says, which is the same on all ranks; `out` (rows,
  // columns) has room for those that come to this one, and what is behind them stays. The counts must live until the operation
  // is complete, and both tensors must lie in memory from allocate() of the world where ranks share memory. Takes every dtype.
  virtual Work exchange_rows(Tensor in, Tensor out, RowCounts counts) = 0;
  virtual void barrier() = 0;

  // Messages between the two ranks of a communicator of exactly two: one of them sends, the other one
  // receives, as one operation of the order. The sender's is complete when the receiver has taken the data.
  virtual Work send(Tensor in) = 0;
  virtual Work recv(Tensor out) = 0;

  // For Work: wait_for() makes progress until operation `sequence` is complete, poll_for() makes some.
  virtual void wait_for(int64_t sequence) = 0;
  virtual bool poll_for(int64_t sequence) = 0;
  // For Work::wait_step().
  virtual bool wait_step_for(int64_t sequence, WaitState&, std::chrono::microseconds) {
    wait_for(sequence);
    return true;
  }

  // Gathers small values (at most 1 KiB a rank) and blocks until they are there: all[r*n, r*n+n) are
  // rank r's.
  virtual void gather_values(std::span<const double> mine, std::span<double> all) = 0;

  // Tells every peer to stop: their waits throw PeerError with this rank and the reason. The first abort
  // of the group stands. Never blocks, may be called from any thread.
  virtual void abort(const std::string& reason) = 0;
  // Returns which rank has stopped the group, and why; empty: none has. May be called from any thread.
  virtual std::string abort_reason() { return {}; }

  // Returns the payload bytes that this rank would have sent by ring algorithms since the start
  // (ring_bytes() in runtime/core/collective), by its parts too.
  virtual int64_t wire_bytes() const = 0;

  // Sets how many seconds a wait may last without progress before it throws; first CommOptions'.
  virtual void set_deadline(double seconds) = 0;

  // Sets how many threads add and copy; first CommOptions'.
  virtual void set_threads(int threads) = 0;

  // Collective. Ends a good run: completes what was started, meets the peers and finalizes MPI. The
  // destructor of the world does the same, but gives up after ten seconds. After a failure neither
  // finalizes MPI, so that the process ends with its own exit status.
  virtual void finish() = 0;

  // Replaces CommOptions::slot; null: none. The slot outlives the communicator.
  virtual void report_to(RankSlot*) {}

  // Returns the number of the machine that a rank is on. Machines are numbered by their first ranks.
  virtual int host_of(int) const { return 0; }

  // Returns null if the host drives the collectives.
  virtual StreamCollectives* on_stream() { return nullptr; }
};

inline bool Work::poll() {
  return comm_ == nullptr || comm_->poll_for(sequence_);
}
inline void Work::wait() {
  if (comm_ != nullptr) comm_->wait_for(sequence_);
}
inline bool Work::wait_step(WaitState& state, std::chrono::microseconds longest) {
  return comm_ == nullptr || comm_->wait_step_for(sequence_, state, longest);
}

// The settings of a new communicator: its deadline, its threads, and the slot that it reports to.
struct CommOptions {
  double deadline_seconds = 600;  // that a wait may last without progress
  int threads = 1;                // threads that add and copy
  // Where the communicator publishes which rank it waits for, and its progress; null: nowhere. Outlives
  // the communicator.
  RankSlot* slot = nullptr;
  // The board of the process that launched all ranks on this machine. They find each other there; with
  // null, by MPI. Outlives the communicator.
  const RankBoard* board = nullptr;
  // Called once, on rank 0, if a slower transport must be used; empty: prints to standard error.
  std::function<void(const std::string&)> warn;
};

}  // namespace dstrain
