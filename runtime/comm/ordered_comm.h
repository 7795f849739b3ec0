// OrderedComm: the base class of the communicators between processes. It checks the arguments,
// numbers the operations, keeps them in start order, carries out the oldest one (stages.h), waits with a
// deadline, and turns a lost peer or an abort into PeerError. A part leaves aborts and settings to the world.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/operation.h"
#include "runtime/comm/rendezvous/part_rendezvous.h"
#include "runtime/comm/stages.h"

namespace dstrain {

class OrderedComm;

// The communicator that another one is a part of, and the part's ranks; by default none, as for the world.
struct PartOf {
  OrderedComm* parent = nullptr;
  std::vector<int> world_ranks{};  // by rank of the part
};

class OrderedComm : public Communicator {
 public:
  std::unique_ptr<Communicator> split(std::span<const int> ranks) final;
  Work all_reduce(Tensor inout) final;
  Work reduce_scatter(Tensor in, Tensor out) final;
  Work all_gather(Tensor in, Tensor out) final;
  Work all_to_all(Tensor in, Tensor out) final;
  Work exchange_rows(Tensor in, Tensor out, RowCounts counts) final;
  Work broadcast(Tensor inout, int root) final;
  Work send(Tensor in) final;
  Work recv(Tensor out) final;
  void barrier() final;
  void gather_values(std::span<const double> mine, std::span<double> all) final;
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  void abort(const std::string& reason) final;
  std::string abort_reason() final;
  int64_t wire_bytes() const final { return wire_bytes_; }
  void set_deadline(double seconds) final { world().deadline_seconds_ = seconds; }
  void set_threads(int threads) final { world().threads_ = threads; }
  void report_to(RankSlot* slot) final { world().slot_ = slot; }
  void finish() final;

  void wait_for(int64_t sequence) final;
  bool poll_for(int64_t sequence) final;
  bool wait_step_for(int64_t sequence, WaitState& state, std::chrono::microseconds longest) final;

 protected:
  // `options` are the world's; a part needs none.
  OrderedComm(int rank, int size, const CommOptions& options, PartOf part = {});
  // The destructor of each transport must call this first, while its own members still exist.
  void close();
  // Stops the group and throws RunError(message); every later call throws PeerError.
  [[noreturn]] void fail(const std::string& message);
  // Calls fail() if a rank's key differs from rank 0's, naming the first such rank. `keys`: by rank.
  void compare_keys(std::span<const OpKey> keys);
  int threads() const { return world().threads_; }
  bool is_part() const { return part_.parent != nullptr; }
  // Returns the number in the world of a rank of this communicator.
  int world_rank(int r) const { return is_part() ? part_.world_ranks[static_cast<size_t>(r)] : r; }
  // Throws InternalError in a part.
  void check_can_allocate(const std::string& what) const;

  // Collective. Returns a communicator of the ranks that meet in `ranks`, this one among them. Every rank
  // gathers as often as the others, whatever it becomes a part of.
  virtual std::unique_ptr<Communicator> open_part(std::unique_ptr<PartRendezvous> ranks) = 0;

  // Carries out an operation. Between two suspensions it does a bounded piece of work and never blocks.
  virtual Stages run(Operation op) = 0;

  // Returns whether the process of `peer` lives; true if that cannot be told (on another host).
  virtual bool peer_alive(int peer) = 0;
  virtual std::string peer_name(int peer) = 0;  // "rank 1 (pid 4711)"
  // Seconds beyond the deadline to wait for `peer`. They let a peer that itself waits for a third rank
  // name that rank first.
  virtual double extra_seconds(int peer) = 0;
  // This rank has waited for `peer` for some time; -1: it goes on.
  virtual void note_waited_rank(int) {}

  // Raises the group's abort flag. Never blocks, is called at most once, possibly by another thread. Not called
  // in a part, whose aborts are the world's.
  virtual void raise_abort(const std::string& reason) = 0;
  // Returns the group's first abort, if any. Several threads may call it at a time.
  virtual std::optional<Abort> raised_abort() = 0;
  // Ends a good run, after all ranks have met.
  virtual void leave() = 0;

 private:
  friend class Stages::promise_type;  // for frame_
  using Clock = std::chrono::steady_clock;
  enum class Step { blocked, moved };

  Work start(Operation op);
  Work start_tensor(Collective kind, const Tensor& in, const Tensor& out, int root);
  // Counts bytes that this rank sends.
  void count(int64_t bytes);
  OrderedComm& world();
  const OrderedComm& world() const;
  Step progress();
  void go_on(WaitState& state, std::chrono::microseconds longest);
  void throw_if_stopped();
  // Looks for an abort for some time.
  void throw_if_stopped_within(std::chrono::milliseconds time);
  Step check_waited_rank(Clock::time_point idle_since);
  void publish_waited_rank(int peer);
  std::string text_of(OpKey key) const;
  void finish_within(double seconds);

  PartOf part_;
  int rank_ = 0;
  int size_ = 1;
  int threads_ = 1;
  double deadline_seconds_;
  bool crowded_;  // more ranks than cores: a rank that spins may take the core that a peer needs
  int64_t started_ = 0;
  int64_t completed_ = 0;
  std::atomic<int64_t> wire_bytes_{0};
  bool finished_ = false;
  RankSlot* slot_;
  int exceptions_at_start_;
  std::string failure_;
  std::mutex abort_mutex_;
  std::atomic<bool> aborted_here_{false};
  std::vector<Operation> queue_;  // in start order; short, so the head is erased in place
  StageFrame frame_;
  Stages stages_;  // of the head of the queue, once begun
};

}  // namespace dstrain
