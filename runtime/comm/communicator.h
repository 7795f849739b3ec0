// Communicator: the collectives a plan uses, over the ranks of one group. Sums are made in rank order
// in fp32 and rounded once to the tensor's dtype, for all-reduce and reduce-scatter alike, so a sum
// never depends on bucket size, stage or transport. On return from Work::wait() the operation is
// complete on this rank and no peer still reads this rank's source. Every wait has a deadline and
// throws PeerError (a RunError) naming the rank that was waited for; after abort() every wait throws it
// at once.
// One thread at a time uses a communicator; only abort() may be called from another one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/core/memory.h"
#include "runtime/core/tensor.h"

namespace dstrain {

class Communicator;
class RankBoard;
struct RankSlot;
class Stream;

// Collectives that become part of a stream's work instead of the host's: nobody waits for them but
// the work that follows in the stream.
class StreamCollectives {
 public:
  virtual ~StreamCollectives() = default;
  virtual void all_reduce(Tensor inout, Stream& stream) = 0;
  virtual void reduce_scatter(Tensor in, Tensor out, Stream& stream) = 0;
  virtual void all_gather(Tensor in, Tensor out, Stream& stream) = 0;
  // Throws RunError where one of them was given up, once its stream has been synchronized.
  virtual void check_failure() = 0;
  // Gives up those under way, so that their streams end, because this rank does not go on.
  virtual void abandon() = 0;
};

// A handle on an operation under way; copying it copies nothing else. poll() makes progress without
// blocking (one core per rank has no helper thread: the compute thread polls at instruction
// boundaries) and returns true once the operation is complete. A handle may be dropped: its operation
// still completes, in its turn, while a later one is waited for or polled. The tensors must live
// until the operation is complete, the communicator longer than its handles.
class Work {
 public:
  Work() = default;  // of nothing: complete
  Work(Communicator* comm, int64_t sequence) : comm_(comm), sequence_(sequence) {}
  bool poll();
  void wait();

 private:
  Communicator* comm_ = nullptr;
  int64_t sequence_ = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective: memory that the peers may read and write directly. Tensors inside it travel without a
  // copy; others are staged. Lives as long as the returned Memory and this communicator. The sizes
  // may differ from rank to rank. Throws RunError naming `what` where memory is refused.
  virtual Memory allocate(int64_t bytes, const std::string& what) = 0;

  // Each starts an operation; operations of one communicator complete in the order they were started,
  // which must be the same on every rank: kind, element count and dtype are compared, and a
  // difference throws RunError on every rank. `out` of a scatter and `in` of a gather is this rank's
  // slice: elements [rank*n, (rank+1)*n) of the whole of n*size elements; it may be that very part of
  // the whole, but not overlap it otherwise. Sums: f32, bf16, f16 (added in fp32), f64 and i32 (added
  // as they are); gather and broadcast take every dtype.
  virtual Work all_reduce(Tensor inout) = 0;
  virtual Work reduce_scatter(Tensor in, Tensor out) = 0;
  virtual Work all_gather(Tensor in, Tensor out) = 0;
  virtual Work broadcast(Tensor inout, int root) = 0;
  virtual void barrier() = 0;

  // What Work calls: progress until operation `sequence` is complete, or once.
  virtual void wait_for(int64_t sequence) = 0;
  virtual bool poll_for(int64_t sequence) = 0;

  // Small values (at most 1 KiB), gathered from every rank: out[r*n .. r*n+n) are rank r's. Blocking.
  virtual void gather_values(std::span<const double> mine, std::span<double> all) = 0;

  // Tells every peer to stop; their waits throw RunError with this rank and the reason (the first
  // abort of the group wins). Does not block, may be called from any thread.
  virtual void abort(const std::string& reason) = 0;

  // Ring-equivalent payload bytes of this rank since the start, by the contract's formula.
  virtual int64_t wire_bytes() const = 0;

  // Seconds a wait may last without progress before it throws; the default is CommOptions'.
  virtual void set_deadline(double seconds) = 0;

  // OpenMP threads that add and copy; the default is CommOptions'.
  virtual void set_threads(int threads) = 0;

  // Collective end of a good run: completes what was started, meets the peers and leaves MPI. The
  // destructor does the same where it can do so soon, and never hangs; after a failure it leaves
  // MPI alone, so that a process then ends with its own exit status.
  virtual void finish() = 0;

  // Says in `slot` from now on whom it waits for and that it gets on, as with CommOptions::slot; null: nowhere.
  // The slot outlives the communicator.
  virtual void report_to(RankSlot*) {}

  // Which machine a rank is on; machines are numbered by their first ranks.
  virtual int host_of(int) const { return 0; }

  // Null where the host drives the collectives.
  virtual StreamCollectives* on_stream() { return nullptr; }
};

inline bool Work::poll() {
  return comm_ == nullptr || comm_->poll_for(sequence_);
}
inline void Work::wait() {
  if (comm_ != nullptr) comm_->wait_for(sequence_);
}

struct CommOptions {
  double deadline_seconds = 600;
  int threads = 1;  // OpenMP threads that add and copy
  // Where it says which rank it waits for, and that it gets on; null: nowhere. Outlives it.
  RankSlot* slot = nullptr;
  // Of the process that launched all ranks on this machine: they find each other there, without MPI;
  // null: by MPI. Outlives it.
  const RankBoard* board = nullptr;
  // Called on rank 0, once, where a slower transport must be used; empty: a line on standard error.
  std::function<void(const std::string&)> warn;
};

// The communicator of all ranks: of the world that mpirun or dstrain itself started, or of this process
// alone. Ranks of one machine share memory, machines exchange messages; only what has no board touches
// MPI. The environment variable DSTRAIN_COMM changes that, for tests: "mpi" uses messages between all
// ranks; "hosts:2" takes the first half of the ranks and the second for two machines (any number, in
// even blocks); "hosts:0,1,0" names the pretended machine of each rank. The results are the same bits
// in every case. Throws RunError where the peers cannot be reached.
std::unique_ptr<Communicator> make_communicator(const CommOptions& options = {});

// Whether this build has MPI.
bool has_mpi();

// What a starter other than mpirun sets for the ranks that it starts, all on one machine.
inline constexpr const char* kWorldSizeVariable = "DSTRAIN_WORLD_SIZE";
inline constexpr const char* kWorldRankVariable = "DSTRAIN_WORLD_RANK";
bool started_without_mpirun();

// What mpirun or another starter says about this process, without initialising MPI; 1, 0, 1, 0 for a
// process that none started.
int world_size_from_environment();
int world_rank_from_environment();
int ranks_on_this_host_from_environment();
int rank_on_this_host_from_environment();

}  // namespace dstrain
