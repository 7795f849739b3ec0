// HostComm: collectives over several machines. Within a machine ranks read and write each other's memory
// (SharedGroup), between machines windows travel by MPI messages along their routes (Exchange). The
// same rank-order sums as SharedComm, so the number of hosts never changes a result.
//
// An operation: the ranks of a machine post it and meet; each then sends what its machine is about to do
// to its partners (the ranks it shares lanes with, at least one on every other host) and compares what
// they do; windows move; the ranks of a machine meet again. Tensors outside allocate()'s memory go
// through the bounce buffers chunk by chunk.
// A small one: the ranks of a machine post it and sleep; their first rank exchanges Packets with those of
// the other hosts, compares what all do, writes the results and wakes them.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/hosts/exchange.h"
#include "runtime/comm/hosts/packets.h"
#include "runtime/comm/ordered.h"
#include "runtime/comm/shared/shared_group.h"
#include "runtime/comm/shared/shared_regions.h"

namespace dstrain {

class HostComm final : public OrderedCommunicator {
 public:
  // `group`: of this rank's host, with bounce buffers of Exchange::least_bounce_bytes() or more.
  HostComm(std::unique_ptr<MpiSession> mpi, Peers peers, std::unique_ptr<SharedGroup> group,
           const CommOptions& options);
  ~HostComm() override;
  Memory allocate(int64_t bytes, const std::string& what) override;
  int host_of(int rank) const override { return hosts_.host_of(rank); }

 protected:
  Step advance(Operation& op) override;
  void sleep() override;
  int waited_rank() override;
  bool peer_alive(int peer) override { return peers_.alive(peer); }
  std::string peer_name(int peer) override { return peers_.name(peer); }
  double grace(int peer) override { return hosts_.host_of(peer) == host_ ? 0 : 0.5; }
  void raise_abort(const std::string& reason) override;
  bool abort_raised(Abort& abort) override;
  void leave() override;

 private:
  enum class Stage { announce, gather, meet, ready, work, settle, collect, packets, delivery };
  // What a host is about to do.
  struct Header {
    OpKey first;  // of its first rank
    OpKey other;  // of the first of its ranks that differs
    int32_t other_rank = -1;
  };
  using Reason = std::array<char, 1000>;
  static constexpr int kHeaderTag = 1, kAbortTag = 2;

  bool local_stage() const;
  // Whether this rank speaks for its machine in small operations.
  bool leads() const { return group_->index() == 0; }
  std::byte* whole_of(int i, int64_t sequence);
  void announce(const Operation& op);
  bool delivered(const Operation& op);
  void take(const Operation& op);
  void exchange_packets(const Operation& op);
  Header own_header(const OpKey& key);
  void exchange_headers(const Operation& op);
  bool headers_done();
  void note_keys(int host, const std::byte* header);
  void meet();
  void finish_small(const Operation& op);
  void lay_out(const Operation& op);
  void next_chunk(const Operation& op);
  bool staged_here() const;
  void stage_in(const Operation& op);
  void stage_out(const Operation& op);

  std::unique_ptr<MpiSession> mpi_;
  Peers peers_;
  const HostMap& hosts_;
  int host_;
  std::unique_ptr<SharedGroup> group_;
  SharedRegions regions_;
  Exchange exchange_;
  Packets packets_;
  Packets::Places places_;
  std::vector<int> partners_;
  std::vector<std::vector<std::byte>> headers_;  // of the partners' hosts, then of this one
  std::vector<MPI_Request> header_requests_;
  std::vector<OpKey> keys_;
  LocalTensors tensors_;
  bool any_staged_ = false;
  Stage stage_ = Stage::announce;
  int sleeps_ = 0;  // since something last moved

  std::mutex abort_mutex_;
  bool raised_here_ = false;  // in the group
  bool sent_ = false;
  Reason abort_reason_{};
  std::vector<MPI_Request> abort_requests_;
};

}  // namespace dstrain
