// MpiComm: collectives by MPI messages between all ranks, for ranks that cannot share memory. Each rank
// receives every peer's part of its share of a sum, adds, and sends the result back, window by window
// through one receive buffer. The same rank-order sums as SharedComm, so the same bits.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "runtime/comm/mpi/abort_messages.h"
#include "runtime/comm/mpi/messages.h"
#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/ordered_comm.h"
#include "runtime/comm/rendezvous/peers.h"
#include "runtime/core/memory.h"

namespace dstrain {

class MpiComm final : public OrderedComm {
 public:
  MpiComm(std::unique_ptr<MpiSession> mpi, Peers peers, const CommOptions& options,
          PartOf part = {});
  ~MpiComm() override;
  Memory allocate(int64_t bytes, const std::string& what) override;
  int host_of(int rank) const override { return peers_.hosts().host_of(rank); }

 protected:
  std::unique_ptr<Communicator> open_part(std::unique_ptr<PartRendezvous> ranks) override;
  Stages run(Operation op) override;
  bool peer_alive(int peer) override { return peers_.alive(peer); }
  std::string peer_name(int peer) override { return peers_.name(peer); }
  double extra_seconds(int) override { return 0; }
  void raise_abort(const std::string& reason) override;
  std::optional<Abort> raised_abort() override;
  void leave() override { mpi_->leave(); }

 private:
  static constexpr int64_t kWindowBytes = int64_t{4} << 20;
  static constexpr int kHeaderTag = 1, kDataTag = 2, kAbortTag = 3;

  // What a rank tells the others about the operation that it has reached.
  struct Header {
    OpKey key;
    std::array<double, kMaxValueBytes / sizeof(double)> values{};
  };

  void exchange_headers(const Operation& op);
  void read_headers(const Operation& op);
  void exchange_window(const Operation& op);
  void add_up(const Operation& op);
  void exchange_sums(const Operation& op);
  // Elements [first, second) of the window that rank r adds.
  std::pair<int64_t, int64_t> share(const Operation& op, int r) const;

  std::unique_ptr<MpiSession> mpi_;
  Peers peers_;
  Messages messages_;
  std::vector<Header> headers_;            // by rank
  std::vector<OpKey> keys_;                // by rank
  std::vector<const std::byte*> sources_;  // of a sum, by rank
  Memory received_;                        // a window's elements, by rank
  int64_t begin_ = 0;  // the window: elements [begin, end) of the whole, or of each slice
  int64_t end_ = 0;

  std::string own_reason_;
  std::atomic<bool> own_abort_{false};
  AbortMessages aborts_;
};

}  // namespace dstrain
