// OrderedCommunicator: what all transports between processes share. Checks the arguments, numbers the
// operations, keeps them in start order, waits with a deadline, and turns a lost peer or an abort into
// RunError. A transport only advances the operation at the head of the queue; it never blocks there.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace dstrain {

enum class Collective : int32_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  barrier,
  gather_values
};

inline bool has_tensor(Collective kind) {
  return kind != Collective::barrier && kind != Collective::gather_values;
}

// What must be the same on every rank.
struct OpKey {
  int64_t sequence = 0;  // from 1
  Collective kind = Collective::barrier;
  DType dtype = DType::f64;
  int32_t root = 0;
  int64_t elements = 0;  // of the whole for all_reduce and broadcast, of one slice otherwise

  bool operator==(const OpKey&) const = default;
};

// "all_reduce #12 (4096 bytes of f32)"
std::string to_string(const OpKey& key);

// The contract's ring-equivalent payload: 2(N-1)/N n for all_reduce, (N-1)/N n for reduce_scatter and
// all_gather, n for broadcast, where n is the whole in bytes; nothing below 1 KiB.
int64_t ring_bytes(Collective kind, int64_t whole_bytes, int ranks);

struct Operation {
  OpKey key;
  std::byte* in = nullptr;   // this rank's source: the whole, or the slice of a gather
  std::byte* out = nullptr;  // its destination: the whole, or the slice of a scatter
  std::span<const double> values;
  std::span<double> all_values;
};

inline constexpr int64_t kMaxValueBytes = 1024;

class OrderedCommunicator : public Communicator {
 public:
  Work all_reduce(Tensor inout) final;
  Work reduce_scatter(Tensor in, Tensor out) final;
  Work all_gather(Tensor in, Tensor out) final;
  Work broadcast(Tensor inout, int root) final;
  void barrier() final;
  void gather_values(std::span<const double> mine, std::span<double> all) final;
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  void abort(const std::string& reason) final;
  int64_t wire_bytes() const final { return wire_bytes_; }
  void set_deadline(double seconds) final { deadline_seconds_ = seconds; }
  void set_threads(int threads) final { threads_ = threads; }
  void report_to(RankSlot* slot) final { slot_ = slot; }
  void finish() final;

  void wait_for(int64_t sequence) final;
  bool poll_for(int64_t sequence) final;

 protected:
  enum class Step { blocked, moved, done };
  struct Abort {
    int rank = 0;
    std::string reason;
  };

  OrderedCommunicator(int rank, int size, const CommOptions& options);
  // Each transport's destructor calls this first, while its own parts still stand.
  void close();
  // Stops the group and throws RunError(message), here; PeerError here at every later call.
  [[noreturn]] void fail(const std::string& message);
  // Throws on every rank, naming the first rank whose operation differs from rank 0's.
  void compare_keys(std::span<const OpKey> keys);
  int threads() const { return threads_; }

  // Makes bounded progress with the head of the queue, never blocking.
  virtual Step advance(Operation& op) = 0;
  // Sleeps until something may have changed, at most a tenth of a second.
  virtual void sleep() = 0;
  // A rank that the head of the queue waits for, or -1; and whether its process lives, as far as can
  // be told (true for other hosts).
  virtual int waited_rank() = 0;
  virtual bool peer_alive(int peer) = 0;
  virtual std::string peer_name(int peer) = 0;  // "rank 1 (pid 4711)"
  // Seconds beyond the deadline that a peer is waited for, so that one that only waits itself can say for
  // whom first.
  virtual double grace(int peer) = 0;
  // Raises and reads the group's abort flag; raising never blocks and is called at most once.
  virtual void raise_abort(const std::string& reason) = 0;
  virtual bool abort_raised(Abort& abort) = 0;
  // The last step of a good run, after all ranks have met.
  virtual void leave() = 0;

 private:
  using Clock = std::chrono::steady_clock;

  Work start(Operation op);
  Work start_tensor(Collective kind, const Tensor& in, const Tensor& out, int root);
  Step progress();
  void throw_if_stopped();
  void check_waited_rank(Clock::time_point idle_since);
  void say_whom(int peer);
  void finish_within(double seconds);

  int rank_ = 0;
  int size_ = 1;
  int threads_ = 1;
  double deadline_seconds_;
  bool crowded_;  // more ranks than cores: a waiting rank holds a core that a peer needs
  int64_t started_ = 0;
  int64_t completed_ = 0;
  int64_t wire_bytes_ = 0;
  bool finished_ = false;
  RankSlot* slot_;
  int exceptions_at_start_;
  std::string failure_;
  std::mutex abort_mutex_;
  std::atomic<bool> aborted_here_{false};
  std::vector<Operation> queue_;  // in start order; short, so the head is erased in place
};

}  // namespace dstrain
