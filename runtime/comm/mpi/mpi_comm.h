// MpiComm: collectives by MPI messages between all ranks, for where memory cannot be shared. The same
// rank-order sums as SharedComm, so the same bits: each rank receives every peer's part of its share,
// adds, and sends the result back, window by window through one scratch buffer.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/ordered.h"
#include "runtime/comm/rendezvous/peers.h"
#include "runtime/core/memory.h"

namespace dstrain {

class MpiComm final : public OrderedCommunicator {
 public:
  MpiComm(std::unique_ptr<MpiSession> mpi, Peers peers, const CommOptions& options);
  ~MpiComm() override;
  Memory allocate(int64_t bytes, const std::string& what) override;
  int host_of(int rank) const override { return peers_.hosts().host_of(rank); }

 protected:
  Step advance(Operation& op) override;
  void sleep() override;
  int waited_rank() override;
  bool peer_alive(int peer) override { return peers_.alive(peer); }
  std::string peer_name(int peer) override { return peers_.name(peer); }
  double grace(int) override { return 0; }
  void raise_abort(const std::string& reason) override;
  bool abort_raised(Abort& abort) override;
  void leave() override;

 private:
  static constexpr int64_t kWindowBytes = int64_t{4} << 20;
  static constexpr size_t kReasonBytes = 1000;
  static constexpr int kHeaderTag = 1, kDataTag = 2, kAbortTag = 3;

  struct Header {
    OpKey key;
    std::array<double, kMaxValueBytes / sizeof(double)> values{};
  };
  // Progress of the operation at the head of the queue.
  enum class Stage { announce, meet, exchange, contribute, deliver };

  void announce(const Operation& op);
  void meet(const Operation& op);
  void exchange(const Operation& op);
  void add_up(const Operation& op);
  void deliver(const Operation& op);
  void send(int peer, const std::byte* data, int64_t bytes);
  void receive(int peer, std::byte* data, int64_t bytes);
  bool requests_done();
  // Elements [first, second) of the window that rank r adds.
  std::pair<int64_t, int64_t> share(const Operation& op, int r) const;

  std::unique_ptr<MpiSession> mpi_;
  MPI_Comm abort_comm_ = MPI_COMM_NULL;
  Peers peers_;
  std::vector<MPI_Request> requests_;  // receives by rank, then sends by rank
  std::vector<Header> headers_;
  std::vector<OpKey> keys_;
  std::vector<const std::byte*> sources_;  // of a sum, by rank
  Header own_header_;
  Memory scratch_;
  Stage stage_ = Stage::announce;
  int64_t begin_ = 0;  // this window: elements [begin, end) of the whole, or of each slice
  int64_t end_ = 0;
  int sleeps_ = 0;  // since messages last moved

  std::array<char, kReasonBytes> own_reason_{};
  std::atomic<bool> own_abort_{false};
  std::vector<MPI_Request> abort_requests_;
};

}  // namespace dstrain
