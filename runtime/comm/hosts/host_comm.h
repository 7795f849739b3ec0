// HostComm: collectives over several machines. Within a machine ranks read and write each other's memory
// (SharedGroup); between machines windows travel by MPI messages along their routes (Exchange). Sums are
// made in rank order as in SharedComm, so the number of hosts never changes a result.
//
// A large operation: the ranks of a machine post it and wait for one another. Each then tells its partners
// what its machine is about to do, and compares it with what they do; partners are the ranks of other hosts
// with the same lanes, at least one on every host. Windows travel, and the ranks of a machine wait for one
// another again. Tensors outside allocate()'s memory go through the bounce buffers in chunks.
// A small operation: the ranks of a machine post it and sleep. Their leader, the first of them, exchanges
// Packets with the leaders of the other hosts, compares what all do, writes the results and wakes them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/hosts/exchange.h"
#include "runtime/comm/hosts/packets.h"
#include "runtime/comm/mpi/abort_messages.h"
#include "runtime/comm/mpi/messages.h"
#include "runtime/comm/ordered_comm.h"
#include "runtime/comm/shared/arrivals.h"
#include "runtime/comm/shared/local_tensors.h"
#include "runtime/comm/shared/shared_group.h"
#include "runtime/comm/shared/shared_regions.h"

namespace dstrain {

class HostComm final : public OrderedComm {
 public:
  // `group`: the ranks of this rank's host, with bounce buffers of Exchange::least_bounce_bytes() or more. A
  // part uses `world_memory`, the memory that the world's ranks have allocated.
  HostComm(std::unique_ptr<MpiSession> mpi, Peers peers, std::unique_ptr<SharedGroup> group,
           const CommOptions& options, PartOf part = {}, RegionView world_memory = {});
  ~HostComm() override;
  Memory allocate(int64_t bytes, const std::string& what) override;
  int host_of(int rank) const override { return hosts_.host_of(rank); }

 protected:
  std::unique_ptr<Communicator> open_part(std::unique_ptr<PartRendezvous> ranks) override;
  Stages run(Operation op) override {
    return packets_.carry(op.key) ? run_small(op) : run_large(op);
  }
  bool peer_alive(int peer) override { return peers_.alive(peer); }
  std::string peer_name(int peer) override { return peers_.name(peer); }
  double extra_seconds(int peer) override { return hosts_.host_of(peer) == host_ ? 0 : 0.5; }
  void note_waited_rank(int peer) override;
  void raise_abort(const std::string& reason) override;
  std::optional<Abort> raised_abort() override;
  void leave() override { mpi_->leave(); }

 private:
  // What the ranks of a host are about to do.
  struct Header {
    OpKey leader;
    OpKey other;  // of the first rank that does something else than the leader
    int32_t other_rank = -1;
  };
  // Until the leader has brought the result of a small operation. If the leader does something else, it
  // never comes: the leader then finds the difference and aborts.
  class Delivery final : public Arrivals {
   public:
    Delivery(SharedGroup& group, std::chrono::milliseconds longest)
        : Arrivals(group, longest), group_(group) {}
    void expect(const OpKey& key) { key_ = key; }
    bool ready() override {
      return Arrivals::ready() && group_.posting(0, key_.sequence).key == key_;
    }

   private:
    SharedGroup& group_;
    OpKey key_;
  };
  static constexpr int kHeaderTag = 1, kAbortTag = 2;

  Stages run_small(Operation op);
  Stages run_large(Operation op);
  bool leads() const { return group_->index() == 0; }
  std::byte* whole_of(int i, int64_t sequence);
  std::byte* scattered_of(int i) const;
  void post(const Operation& op);
  Header own_header(const OpKey& key);
  void exchange_packets(const OpKey& key);
  void exchange_headers(const OpKey& key);
  void note_keys(int host, const std::byte* header);
  void find_tensors(const OpKey& key);
  void stage_in(const Operation& op);
  void stage_out(const Operation& op);
  void raise_here(int rank, const std::string& reason);

  std::unique_ptr<MpiSession> mpi_;
  Peers peers_;
  const HostMap& hosts_;
  int host_;
  std::unique_ptr<SharedGroup> group_;
  Arrivals arrivals_;
  Delivery delivery_;
  SharedRegions regions_;  // of the world
  RegionView memory_;
  Exchange exchange_;
  Packets packets_;
  Packets::RankAddresses places_;
  std::vector<int> partners_;
  Messages header_messages_;
  std::vector<std::vector<std::byte>> headers_;  // of the partners' hosts, then of this one
  std::vector<OpKey> keys_;                      // by rank
  LocalTensors wholes_;

  std::mutex abort_mutex_;
  bool raised_here_ = false;  // in the group
  AbortMessages aborts_;
};

}  // namespace dstrain
